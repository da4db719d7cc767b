"""
The evidence of one registered database, through the user's SQLAlchemy engine: of local work, and of steps of sagas.

Each step writes its own row in its own commit:

    step:3   1 the step was done | 2 it never will be: the barrier
    undo:3   its compensation was done
    …:out    what either of them returned

The row is the first write, and its key admits only one: a repeated step finds that it was done, one that runs after its
compensation finds the barrier. This module must not decide anything. If a process dies between two lines here, either
nothing of the work is committed or all of it, with its row.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.errors import UniqueViolation
from sqlalchemy import Compiled, Connection, Dialect, Engine, QueuePool, Row, Select, Table, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from txsaga.config import RESOURCE
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.records import EvidenceOutcome
from txsaga.core.stored_json import as_json
from txsaga.errors import DecidedOtherwise, EvidenceMissing, OutcomeUnknown, StepRefused, TransactionClosed
from txsaga.evidence import statements
from txsaga.evidence.driver_errors import edge, is_absent, reached, refuses_commit
from txsaga.evidence.local_transaction import begun_with, committing, in_its_process, mark_work
from txsaga.evidence.location import EvidenceLocation, resource_name
from txsaga.evidence.ports import Announce, Ran, Work
from txsaga.evidence.schema import MAIN, EvidenceKey, database_table, ddl
from txsaga.evidence.sessions import (
    PLAIN,
    STATEMENT,
    begin_now,
    connection_of,
    engine_of_loops,
    leave_autocommit,
    limit,
    settle_level,
    short_waits,
)
from txsaga.evidence.statements import SLOT

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def outcomes(rows: Iterable[Row[*tuple[Any, ...]]]) -> dict[EvidenceKey, EvidenceOutcome]:
    """Return the outcome of each transaction whose main row is among these, with its late bodies.

    Rows of two-phase commit branches are in the same table and are ignored here.
    """
    standing: dict[EvidenceKey, Decision] = {}
    bodies: dict[EvidenceKey, dict[int, bytes]] = defaultdict(dict)
    for store, incarnation, txid, branch, outcome, body in rows:
        key = EvidenceKey(store, incarnation, txid)
        if branch == MAIN:
            standing[key] = Decision(outcome)
        elif branch.startswith(SLOT):
            bodies[key][int(branch.removeprefix(SLOT))] = bytes(body)
    return {key: EvidenceOutcome(said is Decision.COMMIT, bodies.get(key, {})) for key, said in standing.items()}


def slots(branches: Iterable[str]) -> frozenset[int]:
    """Return the slot numbers among these branches."""
    return frozenset(int(branch.removeprefix(SLOT)) for branch in branches if branch.startswith(SLOT))


_ASKED_AT_ONCE = 10_000  # servers limit the parameters of a statement
_FENCES = 4  # connections


def _nobody(done: bool) -> None:
    """Ignore the announcement."""


class SqlEvidence:
    """Evidence in PostgreSQL, MariaDB, MySQL or SQLite; connects on first use."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str | None = None,
        create: bool = True,
        loops: AsyncEngine | None = None,
        where: EvidenceLocation | None = None,
    ) -> None:
        ddl(engine.dialect.name)  # refuses other databases
        self._engine, self.loops = engine, loops
        self._name = name or resource_name(engine)
        self._where = where or EvidenceLocation(engine, self._name, create=create)
        self.steps = SqlSteps(engine, self._name, self._where)
        self._within: LoopEvidence | None = None

    def in_loop(self) -> SqlEvidence:
        """Return the same evidence for local work in an event loop; `ConfigError` without an async engine."""
        if self._within is None:
            self._within = LoopEvidence(engine_of_loops(self.loops, self._name), self._name, self._where)
        return self._within

    @property
    def database(self) -> UUID:
        """The uuid stored in this database next to the evidence table."""
        return self._where.place.database

    @contextmanager
    def work(self, transaction: str, announce: Announce = _nobody) -> Iterator[Connection]:
        """Open a local transaction whose first write is its evidence row; leaving the block commits it."""
        key, table = EvidenceKey.parse(transaction), self._where.place.table
        connection = self._open()
        with in_its_process(connection):
            with edge(self._name):
                leave_autocommit(connection)
                opened = connection.begin()
                _write_first(connection, table, key)
                mark_work(connection)
            with committing(opened, transaction, lambda: statements.outcome_of(table, key), announce):
                yield self._shown(connection)

    def fill(self, connection: Connection, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body with the evidence, in the local transaction."""
        filled = statements.write_body(self._where.place.table, EvidenceKey.parse(transaction), f"{SLOT}{slot}", body)
        connection_of(connection).execute(filled, execution_options=PLAIN)

    def filled(self, connection: Connection, transaction: str) -> frozenset[int]:
        """Return the slots whose bodies are stored in the local transaction."""
        key = EvidenceKey.parse(transaction)
        asked = statements.branches(self._where.place.table, key)
        return slots(connection_of(connection).scalars(asked, execution_options=PLAIN))

    def read(self, transaction: str) -> EvidenceOutcome | None:
        """Return the recorded outcome; None if there is no evidence."""
        return self.read_many([transaction]).get(transaction)

    def read_many(self, transactions: Sequence[str]) -> dict[str, EvidenceOutcome]:
        """Return the recorded outcome of each transaction that has evidence, in one query."""
        keys = {transaction: EvidenceKey.parse(transaction) for transaction in transactions}
        asked, place = list(set(keys.values())), self._where.place
        found: dict[EvidenceKey, EvidenceOutcome] = {}
        with _asking(self._name, self._engine) as connection:
            self._where.require_same(connection, place)
            for start in range(0, len(asked), _ASKED_AT_ONCE):
                batch = asked[start : start + _ASKED_AT_ONCE]
                found |= outcomes(connection.execute(statements.look(place.table, batch)))
        return {transaction: found[key] for transaction, key in keys.items() if key in found}

    @property
    def at_once(self) -> int:
        """How many are fenced concurrently: several only on servers, and no more than the user's pool keeps open."""
        pool = self._engine.pool
        if self._engine.dialect.name == "sqlite" or not isinstance(pool, QueuePool):
            return 1
        return max(1, min(_FENCES, pool.size()))

    def fence(self, transaction: str) -> EvidenceOutcome | None:
        """Write the rollback barrier unless evidence exists, and return the recorded outcome; None while it runs."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with _asking(self._name, self._engine, locks=1) as connection:
            if self._where.write_barrier(connection, place, key):
                return EvidenceOutcome(committed=False, bodies={})
            limit(connection)
            self._where.require_same(connection, place)
            return outcomes(connection.execute(statements.look(place.table, [key]))).get(key)

    def _open(self) -> Connection:
        with edge(self._name):
            return self._engine.connect()

    def _shown(self, connection: Connection) -> Connection:
        return connection


@contextmanager
def _asking(resource: str, engine: Engine, locks: int = STATEMENT) -> Iterator[Connection]:
    with reached(resource, engine) as connection:
        settle_level(connection)
        with short_waits(connection, locks):
            yield connection


def _write_first(connection: Connection, table: Table, key: EvidenceKey) -> None:
    try:
        if not begun_with(connection, table, key):
            begin_now(connection)
            statements.write_now(connection, table, key, Decision.COMMIT)
    except IntegrityError as error:
        connection.rollback()
        standing = connection.scalar(statements.outcome_of(table, key), execution_options=PLAIN)
        if standing is None:
            raise
        raise DecidedOtherwise(key.txid, Decision(standing).name) from error


class LoopEvidence(SqlEvidence):
    """Evidence for local work in an event loop: an AsyncEngine does the work, another engine reads the evidence."""

    def __init__(self, engine: AsyncEngine, name: str, where: EvidenceLocation) -> None:
        self._engine, self._name, self._where = engine.sync_engine, name, where
        self._asynchronous = engine
        self._agrees = False  # whether both engines lead to the same database

    def in_loop(self) -> SqlEvidence:
        """Return itself."""
        return self

    def _shown(self, connection: Connection) -> Any:
        from sqlalchemy.ext.asyncio import AsyncConnection

        return AsyncConnection(self._asynchronous, connection)

    def _open(self) -> Connection:
        connection = super()._open()
        if not self._agrees:
            with on_failure(connection.close), edge(self._name):
                self._require_same(connection)
                connection.rollback()
            self._agrees = True
        return connection

    def _require_same(self, connection: Connection) -> None:
        place, uuid = self._where.place, None
        try:
            asked = select(database_table(place.table.schema).c.uuid)
            uuid = connection.scalar(asked, execution_options=PLAIN)
        except DBAPIError as error:
            if not is_absent(error):
                raise
        if uuid is None or UUID(hex=uuid) != place.database:
            raise EvidenceMissing(
                f"the engine of {self._name!r} points to another database than "
                f"{RESOURCE}{self._name.upper()}, which check-back uses; set both to the same database"
            )


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
) -> Ran | None:
    """Send a step's row, its statement and COMMIT together; None if the row existed.

    The server runs each only if the previous one succeeded, so nothing is committed without its row. If the connection
    is lost the step may have been committed: only an explicit refusal by the server is a no.
    """
    table, key, row = place
    statement = compiled(sql, connection.dialect)
    written = _row_of_step(table, connection.dialect)
    announce(False)
    try:
        with driver.pipeline():
            driver.execute(written.encode(), statements.row(key, Decision.COMMIT, row), prepare=True)
            cursor = driver.execute(str(statement).encode(), statement.construct_params(dict(input)))
            driver.commit()
        answer = [list(each) for each in cursor.fetchall()] if cursor.description is not None else cursor.rowcount
    except psycopg.Error as error:
        _failed(connection, driver, table, error)
        return None
    announce(True)
    return Ran(answer, fresh=True)


@cache
def _row_of_step(table: Table, dialect: Dialect) -> str:
    return str(statements.write(table, dialect.name).compile(dialect=dialect))


@cache
def compiled(sql: str, dialect: Dialect) -> Compiled:
    """Compile a user's statement for the driver; each is compiled once."""
    return text(sql).compile(dialect=dialect)


def _failed(connection: Connection, driver: psycopg.Connection[Any], table: Table, error: psycopg.Error) -> None:
    """Return if the row existed; else raise what the error means."""
    if driver.closed:
        connection.invalidate(error)
    else:
        driver.rollback()
    if isinstance(error, UniqueViolation) and error.diag.table_name == table.name:
        return
    lost = connection.invalidated
    told = DBAPIError.instance(
        None, None, error, psycopg.Error, connection_invalidated=lost, dialect=connection.dialect
    )
    if isinstance(told, DBAPIError) and not refuses_commit(told):
        raise OutcomeUnknown(f"it is unknown whether a step was committed: {' '.join(str(error).split())}") from error
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
                return sent or self._stands(connection, table, key, row)
            with edge(self._name):
                if not _write_row_first(connection, table, key, row):
                    return self._stands(connection, table, key, row)
                mark_work(connection)
            process, question, answer = os.getpid(), statements.outcome_of(table, key, row), None
            with _as_it_stands(connection, question), committing(opened, transaction, lambda: question, announce):
                answer = _do(connection, work, input)
                # A forked child must not write on its parent's session.
                if answer is not None and not isinstance(work, str) and os.getpid() == process:
                    kept = as_json(answer, f"what {row} of {transaction} returned")
                    stored = statements.write_body(table, key, row + OUT, kept.encode())
                    connection.execute(stored, execution_options=PLAIN)
        return Ran(answer, fresh=True)

    def fence(self, transaction: str, row: str) -> bool | None:
        """Return whether a step was done; if not, prevent it. None while it runs."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with _asking(self._name, self._engine, locks=1) as connection:
            if self._where.write_barrier(connection, place, key, row):
                return False
            limit(connection)
            self._where.require_same(connection, place)
            standing = connection.scalar(statements.outcome_of(place.table, key, row))
        return None if standing is None else Decision(standing) is Decision.COMMIT

    def is_running(self, transaction: str, row: str) -> bool:
        """Return whether an open transaction is doing a step."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with _asking(self._name, self._engine, locks=1) as connection:
            return self._where.write_barrier(connection, place, key, row, keep=False) is None

    def output(self, transaction: str, row: str) -> str | None:
        """Return the stored result of a step that was done."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with _asking(self._name, self._engine) as connection:
            return _output(connection, place.table, key, row)

    def _stands(self, connection: Connection, table: Table, key: EvidenceKey, row: str) -> Ran:
        with edge(self._name):
            standing = connection.scalar(statements.outcome_of(table, key, row), execution_options=PLAIN)
            if standing is None or Decision(standing) is Decision.ROLLBACK:
                raise StepRefused(f"{key.store}-{key.incarnation:x}-{key.txid:x}", int(row.partition(":")[2]))
            kept = _output(connection, table, key, row)
        return Ran(None if kept is None else json.loads(kept), fresh=False)


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
                "the step was committed before it failed, by a COMMIT or by DDL: the work before that is durable; "
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


def _write_row_first(connection: Connection, table: Table, key: EvidenceKey, row: str) -> bool:
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
    found = connection.execute(text(work), dict(input))
    return [list(each) for each in found] if found.returns_rows else found.rowcount


def _output(connection: Connection, table: Table, key: EvidenceKey, row: str) -> str | None:
    kept = connection.scalar(statements.body_of(table, key, row + OUT), execution_options=PLAIN)
    return None if kept is None else bytes(kept).decode()
