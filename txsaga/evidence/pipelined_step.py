"""
A single-statement step on PostgreSQL: its row, the statement and COMMIT are sent together.

The server runs each only if the previous one succeeded, so nothing is committed without its row. If the connection is
lost the step may have been committed: only an explicit refusal by the server is a no. The code must not wait between
two of them: saving that wait is its purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import UniqueViolation
from sqlalchemy import Compiled, Connection, Dialect, Table, text
from sqlalchemy.exc import DBAPIError

from txsaga.core.decision import Decision
from txsaga.errors import OutcomeUnknown
from txsaga.evidence import statements
from txsaga.evidence.driver_errors import refuses_commit
from txsaga.evidence.ports import Announce
from txsaga.evidence.schema import EvidenceKey


class SentStep(NamedTuple):
    """The result; if not `fresh`, the row existed: the step was done or fenced before."""

    fresh: bool
    answer: object = None


def driver_of(connection: Connection) -> psycopg.Connection[Any] | None:
    """Return the driver's connection if it supports pipelining."""
    driver = connection.connection.driver_connection
    return driver if isinstance(driver, psycopg.Connection) and psycopg.Pipeline.is_supported() else None


def send(
    connection: Connection,
    driver: psycopg.Connection[Any],
    place: tuple[Table, EvidenceKey, str],
    sql: str,
    input: Mapping[str, object],
    announce: Announce,
) -> SentStep:
    """Run a statement with its row, and commit."""
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
