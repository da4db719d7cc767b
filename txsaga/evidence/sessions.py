"""Prepares connections of the user's engine for evidence and restores their settings afterwards.

The user's engine may be in AUTOCOMMIT, in SERIALIZABLE, or a SQLite whose driver begins late. None of that may distort
the evidence, and no setting changed here may stay on a pooled connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

PutBack = Callable[[Any], None]

IDLE, IN_ERROR = 0, 3
"""Transaction states as libpq numbers them."""
_KEPT = "txsaga as it was"
_MYSQL = ("mysql", "mariadb")


def keep(connection: Connection) -> None:
    """Save a connection's session settings for restoring; SQLAlchemy itself restores what its options changed."""
    if _KEPT in connection.info or "isolation_level" in connection.get_execution_options():
        return
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        put_back = _of_psycopg(driver)
    elif isinstance(driver, psycopg.AsyncConnection) and driver.autocommit:
        put_back = _commits_by_itself
    elif connection.dialect.name in _MYSQL:
        put_back = _of_mysql(connection)
    else:
        return
    pool = connection.engine.pool
    if not event.contains(pool, "checkin", _put_back):
        event.listen(pool, "checkin", _put_back)  # after SQLAlchemy's own reset
    connection.info[_KEPT] = put_back


def _of_psycopg(driver: psycopg.Connection[Any]) -> PutBack:
    before = driver.autocommit, driver.isolation_level, driver.read_only, driver.deferrable

    def put_back(_: object) -> None:
        driver.autocommit, driver.isolation_level, driver.read_only, driver.deferrable = before

    return put_back


def _commits_by_itself(session: Any) -> None:  # SQLAlchemy's wrapper of an asynchronous session
    session.autocommit = True


def _of_mysql(connection: Connection) -> PutBack:
    dialect, dbapi = connection.dialect, connection.connection.dbapi_connection
    assert dbapi is not None
    commits, level = dialect.detect_autocommit_setting(dbapi), dialect.get_isolation_level(dbapi)

    def put_back(session: Any) -> None:  # any driver's
        if level != dialect.default_isolation_level:
            dialect.set_isolation_level(session, level)
        if commits:
            session.autocommit(True)

    return put_back


def _put_back(dbapi_connection: Any, record: Any) -> None:  # any driver's
    put_back = record.info.pop(_KEPT, None)
    if put_back is None or dbapi_connection is None:
        return
    try:
        put_back(dbapi_connection)
    except Exception as error:  # noqa: BLE001  # no later user may get the connection with our settings
        record.invalidate(error)


def engine_of_loops(engine: AsyncEngine | None, resource: str) -> AsyncEngine:
    """Return the engine for work within an event loop."""
    if engine is None:
        raise ConfigError(
            f"resource {resource!r} is registered with an engine for threads; "
            "register it with create_async_engine(…) to work in it within an event loop"
        )
    return engine


def connection_of(handle: object) -> Connection:
    """Return the SQLAlchemy connection that a user works with, also within an event loop."""
    connection = getattr(handle, "sync_connection", handle)
    assert isinstance(connection, Connection)
    return connection


STATEMENT = 5
"""Seconds; a database that does not answer within this time is asked again later."""

# REPEATABLE READ: InnoDB reads with locks above it, and a statement-based binary log forbids writes below it.
_LEVELS = {"postgresql": "READ COMMITTED", "mysql": "REPEATABLE READ", "mariadb": "REPEATABLE READ"}


PLAIN = {"schema_translate_map": None, "stream_results": False, "yield_per": None}
"""Options of our statements: the user's options are meant for the user's tables and rows."""


def plain(engine: Engine) -> Engine:
    """Return an engine on the same pool without options that would distort our statements."""
    return engine.execution_options(**PLAIN) if PLAIN.keys() & engine.get_execution_options().keys() else engine


def settle_level(connection: Connection) -> None:
    """Set the isolation level for reading and fencing on a connection of our own.

    A connection that leaves its pool inside a transaction keeps its level: it can't be changed any more.
    """
    if (level := _LEVELS.get(connection.dialect.name)) and not session_state(connection):
        keep(connection)
        connection.execution_options(isolation_level=level)


def commit_each(connection: Connection) -> None:
    """Put a connection of our own into AUTOCOMMIT."""
    if session_state(connection):  # not IDLE
        connection.connection.rollback()
    keep(connection)
    connection.execution_options(isolation_level="AUTOCOMMIT")


def session_state(connection: Connection) -> int | None:
    """Return libpq's transaction status without a round trip; None for other drivers."""
    info = getattr(connection.connection.driver_connection, "info", None)
    state = getattr(info, "transaction_status", None)
    return int(state) if state is not None else None


def leave_autocommit(connection: Connection) -> None:
    """Take a connection out of AUTOCOMMIT, whatever its engine's default."""
    if _is_autocommitting(connection):
        settle_level(connection)


def refuse_autocommit(connection: Connection, both: str = "an effect and its row") -> None:
    """Refuse a user's connection in AUTOCOMMIT, where two writes would be visible one before the other."""
    if _is_autocommitting(connection):
        raise ConfigError(
            f"the connection is in AUTOCOMMIT, where {both} can't share a commit; "
            'open it with engine.execution_options(isolation_level="READ COMMITTED")'
        )


def _is_autocommitting(connection: Connection) -> bool:
    """Return whether each statement commits by itself; SQLite's transaction is opened by `begin_now`."""
    driver = connection.connection.dbapi_connection
    assert driver is not None
    if connection.dialect.name != "sqlite":
        return connection.dialect.detect_autocommit_setting(driver)
    if getattr(driver, "autocommit", None) is True:  # the driver's commit() would do nothing
        raise ConfigError("sqlite3 with autocommit=True can't keep evidence; leave it at its default")
    return False


def begin_now(connection: Connection) -> None:
    """Open SQLite's transaction for writing; other databases open theirs with the first statement."""
    if connection.dialect.name == "sqlite":
        if not connection.in_transaction():
            connection.begin()  # the engine may have its own handler for begin
        driver = connection.connection.driver_connection
        if not getattr(driver, "in_transaction", False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def limit(connection: Connection, locks: int = STATEMENT) -> None:
    """On PostgreSQL limit how long statements take and how long an idle session keeps its locks.

    The limits end with the transaction.
    """
    if connection.dialect.name == "postgresql":
        limits = {
            "lock_timeout": locks,
            "statement_timeout": STATEMENT,
            "idle_in_transaction_session_timeout": STATEMENT,
        }
        named = ", ".join(f"set_config('{name}', '{seconds:d}s', true)" for name, seconds in limits.items())
        connection.exec_driver_sql(f"select {named}").close()


@contextmanager
def short_waits(connection: Connection, locks: int = STATEMENT) -> Iterator[None]:
    """Limit waits for locks and answers; settings of the session are restored afterwards."""
    match connection.dialect.name:
        case "postgresql":
            limit(connection, locks)
            yield
        case "sqlite":
            before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
            with _changed(connection, f"PRAGMA busy_timeout = {locks * 1000:d}", f"PRAGMA busy_timeout = {before:d}"):
                yield
        case _:
            there = _mysql(connection, locks)
            before = connection.exec_driver_sql(f"select {', '.join(there)}").one()
            back = zip(there, before, strict=True)
            with _changed(connection, f"set {_assigned(there.items())}", f"set {_assigned(back)}"):
                yield


def _mysql(connection: Connection, locks: int) -> dict[str, int]:
    waits = {"@@session.innodb_lock_wait_timeout": locks, "@@session.lock_wait_timeout": locks}
    if getattr(connection.dialect, "is_mariadb", False):
        return waits | {"@@session.max_statement_time": STATEMENT, "@@session.idle_transaction_timeout": STATEMENT}
    return waits | {"@@session.max_execution_time": STATEMENT * 1000}


def _assigned(values: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values)


@contextmanager
def _changed(connection: Connection, there: str, back: str) -> Iterator[None]:
    connection.exec_driver_sql(there).close()
    try:
        yield
    finally:
        if not connection.invalidated:
            try:
                connection.exec_driver_sql(back).close()
            except DBAPIError as error:
                connection.invalidate(error)  # no later user may get it with our settings
