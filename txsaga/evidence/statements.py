"""The statements on the evidence table; the caller commits."""

from collections.abc import Collection
from functools import cache
from itertools import groupby
from typing import Any

import psycopg
from sqlalchemy import (
    ColumnElement,
    Compiled,
    Connection,
    Dialect,
    Insert,
    Select,
    Table,
    and_,
    bindparam,
    insert,
    or_,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError

from txsaga.core.decision import Decision
from txsaga.evidence.schema import MAIN, EvidenceKey

SLOT = "slot:"  # prefix of branches with late bodies, before the slot number


# The row and the local work must survive a server crash even if the session has turned synchronous_commit off. Part of
# the same statement, since that opens every local transaction. The setting ends with the transaction.
DURABLE = "case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', true) end"

# The server reports this setting to the client unasked, both when it is set and when it reverts at the end of the
# transaction: so the client knows without a round trip whether it is still in the row's transaction.
MARKED = f"""{DURABLE}, set_config('application_name',
  left(split_part(current_setting('application_name'), ' #', 1), 40) || ' #' || pg_current_xact_id(), true)"""


@cache
def write(table: Table) -> Insert:
    """Insert the row that records the outcome of local work; its key admits only one."""
    # Not `on conflict do nothing`: a duplicate-key error is the same at every isolation level.
    return insert(table).values({column: bindparam(column) for column in (*EvidenceKey._fields, "branch", "outcome")})


@cache
def _written(table: Table, dialect: Dialect) -> Compiled:
    statement = write(table)
    if dialect.name == "postgresql":
        return statement.returning(text(MARKED)).compile(dialect=dialect)
    return statement.compile(dialect=dialect)


@cache
def written(table: Table, dialect: Dialect) -> str:
    """Return the compiled SQL of `write` for a dialect."""
    return str(_written(table, dialect))


def write_now(connection: Connection, table: Table, key: EvidenceKey, outcome: Decision, branch: str = MAIN) -> None:
    """Insert the row from precompiled SQL: it opens every local transaction, so this path is kept short."""
    compiled = _written(table, connection.dialect)
    values = row(key, outcome, branch)
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection) and connection.in_transaction():
        _execute(connection, driver, str(compiled), values)
    elif getattr(compiled, "positional", False):
        order = getattr(compiled, "positiontup", None) or ()
        connection.exec_driver_sql(str(compiled), tuple(values[name] for name in order)).close()
    else:
        connection.exec_driver_sql(str(compiled), values).close()


def _execute(connection: Connection, driver: psycopg.Connection[Any], sql: str, values: dict[str, object]) -> None:
    """Run a statement bypassing SQLAlchemy, but raise the errors SQLAlchemy would raise."""
    try:
        driver.execute(sql.encode(), values, prepare=False)  # prepared statements may not survive in this session
    except psycopg.Error as error:
        if driver.closed:
            connection.invalidate(error)
        told = DBAPIError.instance(
            sql, None, error, psycopg.Error, connection_invalidated=connection.invalidated, dialect=connection.dialect
        )
        raise told from error


def row(key: EvidenceKey, outcome: Decision, branch: str = MAIN) -> dict[str, object]:
    """Return the parameters of `write`."""
    return {**key._asdict(), "branch": branch, "outcome": int(outcome)}


def write_body(table: Table, key: EvidenceKey, slot: int, body: bytes) -> Insert:
    """Insert a late body with the evidence."""
    return insert(table).values(**key._asdict(), branch=f"{SLOT}{slot}", outcome=int(Decision.COMMIT), body=body)


def look(table: Table, keys: Collection[EvidenceKey]) -> Select[str, int, int, str, int, bytes | None]:
    """Select all rows of the given transactions."""
    c = table.c
    return select(c.store, c.incarnation, c.txid, c.branch, c.outcome, c.body).where(_any_of(table, keys))


def outcome_of(table: Table, key: EvidenceKey) -> Select[int]:
    """Select the outcome of one transaction."""
    return select(table.c.outcome).where(_any_of(table, [key]), table.c.branch == MAIN)


def branches(table: Table, key: EvidenceKey) -> Select[str]:
    """Select the branches of one transaction."""
    return select(table.c.branch).where(_any_of(table, [key]))


def _any_of(table: Table, keys: Collection[EvidenceKey]) -> ColumnElement[bool]:
    c = table.c
    return or_(
        *(
            and_(c.store == store, c.incarnation == incarnation, c.txid.in_([key.txid for key in group]))
            for (store, incarnation), group in groupby(sorted(keys), _life)
        )
    )


def _life(key: EvidenceKey) -> tuple[Any, ...]:
    return key[:2]
