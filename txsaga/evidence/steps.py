"""
Steps of sagas in one registered database: each writes its own row in its own commit.

    step:3   1 the step was done | 2 it never will be: the barrier
    undo:3   its compensation was done
    …:out    what either of them returned

The row is the first write, and its key admits only one: a repeated step finds that it was done, one that runs after its
compensation finds the barrier. This module must not decide anything. If a process dies between two lines here, either
nothing of the step is committed or all of it, with its row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import UniqueViolation
from sqlalchemy import Compiled, Connection, Dialect, Engine, Select, Table, TextClause, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from txsaga.core.decision import Decision
from txsaga.core.stored_json import as_json
from txsaga.errors import OutcomeUnknown, StepRefused, TransactionClosed
from txsaga.evidence import statements
from txsaga.evidence.driver_errors import edge, reached, refuses_commit
from txsaga.evidence.local_transaction import committing, in_its_process, mark_work
from txsaga.evidence.location import EvidenceLocation
from txsaga.evidence.ports import Announce, Ran, Work
from txsaga.evidence.schema import EvidenceKey
from txsaga.evidence.sessions import PLAIN, begin_now, leave_autocommit, limit, settle_level, short_waits


class SentStep(NamedTuple):
    """The result; if not `fresh`, the row existed: the step was done or fenced before."""

    fresh: bool
    answer: object = None


def driver_of(connection: Connection) -> psycopg.Connection[Any] | None:
    """Return the driver's connection if it supports pipelining."""
    driver = connection.connection.driver_connection
    return driver if isinstance(driver, psycopg.Connection) and psycopg.Pipeline.is_supported() else None


def send_in_one_trip(
    connection: Connection,
    driver: psycopg.Connection[Any],
    place: tuple[Table, EvidenceKey, str],
    sql: str,
    input: Mapping[str, object],
    announce: Announce,
) -> SentStep:
    """Send a step's row, its statement and COMMIT together.

    The server runs each only if the previous one succeeded, so nothing is committed without its row. If the connection
    is lost the step may have been committed: only an explicit refusal by the server is a no.
    """
    table, key, row = place
    statement = compiled(sql, connection.dialect)
    written = statements.written(table, connection.dialect)
    announce(False)
    try:
        with driver.pipeline():
            driver.execute(written.encode(), statements.row(key, Decision.COMMIT, row), prepare=True)
            cursor = driver.execute(str(statement).encode(), statement.construct_params(dict(input)))
            driver.commit()
        answer = [list(each) for each in cursor.fetchall()] if cursor.description is not None else cursor.rowcount
    except psycopg.Error as error:
        return _failed(connection, driver, table, error)
    announce(True)
    return SentStep(True, answer)


@cache
def compiled(sql: str, dialect: Dialect) -> Compiled:
    """Compile a user's statement for the driver; each is compiled once."""
    return text(sql).compile(dialect=dialect)


def _failed(connection: Connection, driver: psycopg.Connection[Any], table: Table, error: psycopg.Error) -> SentStep:
    if driver.closed:
        connection.invalidate(error)
    else:
        driver.rollback()
    if isinstance(error, UniqueViolation) and error.diag.table_name == table.name:
        return SentStep(False)
    lost = connection.invalidated
    told = DBAPIError.instance(
        None, None, error, psycopg.Error, connection_invalidated=lost, dialect=connection.dialect
    )
    if isinstance(told, DBAPIError) and not refuses_commit(told):
        raise OutcomeUnknown(f"whether a step was committed is not known: {' '.join(str(error).split())}") from error
    raise told from error


OUT = ":out"


class SqlSteps:
    """The steps in one database, through the user's own engine."""

    def __init__(self, engine: Engine, name: str, where: EvidenceLocation) -> None:
        self._engine, self._name, self._where = engine, name, where

    def run(self, transaction: str, row: str, work: Work | str, input: Mapping[str, object], announce: Announce) -> Ran:
        """Do work once, with its row in the same commit."""
        key, table = EvidenceKey.parse(transaction), self._where.place.table
        with edge(self._name):
            connection = self._engine.connect()
        with in_its_process(connection):
            with edge(self._name):
                leave_autocommit(connection)
                opened = connection.begin()
            if isinstance(work, str) and (driver := driver_of(connection)) is not None:
                sent = send_in_one_trip(connection, driver, (table, key, row), work, input, announce)
                return Ran(sent.answer, True) if sent.fresh else self._stands(connection, table, key, row)
            with edge(self._name):
                if not _write_first(connection, table, key, row):
                    return self._stands(connection, table, key, row)
                mark_work(connection)
            process, question, answer = os.getpid(), outcome_of(table, key, row), None
            with _as_it_stands(connection, question), committing(opened, transaction, lambda: question, announce):
                answer = _do(connection, work, input)
                # A forked child must not write on its parent's session.
                if answer is not None and not isinstance(work, str) and os.getpid() == process:
                    kept = as_json(answer, f"what {row} of {transaction} returned")
                    connection.execute(_keep(table, key, row, kept.encode()), execution_options=PLAIN)
        return Ran(answer, fresh=True)

    def fence(self, transaction: str, row: str) -> bool | None:
        """Return whether a step was done; if not, prevent it. None while it runs."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with reached(self._name, self._engine) as connection:
            settle_level(connection)
            with short_waits(connection, locks=1):
                if self._where.write_barrier(connection, place, key, row):
                    return False
                limit(connection)
                self._where.require_same(connection, place)
                standing = connection.scalar(outcome_of(place.table, key, row))
        return None if standing is None else Decision(standing) is Decision.COMMIT

    def output(self, transaction: str, row: str) -> str | None:
        """Return the stored result of a step that was done."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with reached(self._name, self._engine) as connection:
            settle_level(connection)
            with short_waits(connection):
                return _output(connection, place.table, key, row)

    def _stands(self, connection: Connection, table: Table, key: EvidenceKey, row: str) -> Ran:
        with edge(self._name):
            return Ran(self._standing(connection, table, key, row), fresh=False)

    def _standing(self, connection: Connection, table: Table, key: EvidenceKey, row: str) -> object:
        standing = connection.scalar(outcome_of(table, key, row), execution_options=PLAIN)
        if standing is None or Decision(standing) is Decision.ROLLBACK:
            raise StepRefused(f"{key.store}-{key.incarnation:x}-{key.txid:x}", int(row.partition(":")[2]))
        kept = _output(connection, table, key, row)
        return None if kept is None else json.loads(kept)


@contextmanager
def _as_it_stands(connection: Connection, question: Select[int]) -> Iterator[None]:
    """Raise `TransactionClosed` if a step failed but had committed by itself, by a COMMIT or DDL."""
    process = os.getpid()
    try:
        yield
    except Exception as error:
        if os.getpid() != process or not _is_committed(connection, question):
            raise
        if not isinstance(error, TransactionClosed):
            raise TransactionClosed(
                "the step was committed before it failed, by a COMMIT or by DDL: what came before that is durable; "
                "leave the commit to the saga"
            ) from error


def _is_committed(connection: Connection, question: Select[int]) -> bool:
    """Return whether the row of a failed step is committed; False if the session is lost."""
    if connection.closed or connection.invalidated:
        return False
    try:
        connection.rollback()
        return connection.scalar(question, execution_options=PLAIN) == Decision.COMMIT
    except SQLAlchemyError:
        return False


@cache
def statement(sql: str) -> TextClause:
    """Parse a user's statement; each is parsed once."""
    return text(sql)


def outcome_of(table: Table, key: EvidenceKey, row: str) -> Select[int]:
    """Select the outcome in one row."""
    return select(table.c.outcome).where(*_at(table, key, row))


def _write_first(connection: Connection, table: Table, key: EvidenceKey, row: str) -> bool:
    try:
        begin_now(connection)
        statements.write_now(connection, table, key, Decision.COMMIT, row)
    except IntegrityError:
        connection.rollback()
        return False
    return True


def _do(connection: Connection, work: Work | str, input: Mapping[str, object]) -> object:
    if not isinstance(work, str):
        return work(connection)
    found = connection.execute(statement(work), dict(input))
    return [list(each) for each in found] if found.returns_rows else found.rowcount


def _keep(table: Table, key: EvidenceKey, row: str, body: bytes) -> Any:
    return insert(table).values(**statements.row(key, Decision.COMMIT, row + OUT), body=body)


def _output(connection: Connection, table: Table, key: EvidenceKey, row: str) -> str | None:
    asked = select(table.c.body).where(*_at(table, key, row + OUT))
    kept = connection.scalar(asked, execution_options=PLAIN)
    return None if kept is None else bytes(kept).decode()


def _at(table: Table, key: EvidenceKey, row: str) -> list[Any]:
    c = table.c
    return [c.store == key.store, c.incarnation == key.incarnation, c.txid == key.txid, c.branch == row]
