"""
How a pooled session was before we changed it, and back to that when it returns to its pool.

SQLAlchemy puts back the level of the dialect, which need not be what a driver's option, or an event of the pool, had
given the session. If that were left so, the next user of the pool would work under another isolation, or lose what was
to commit by itself.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, event

PutBack = Callable[[Any], None]

_KEPT = "txsaga as it was"
_MYSQL = ("mysql", "mariadb")


def keep(connection: Connection) -> None:
    """Note how the session of a connection is; what an option of SQLAlchemy's has changed SQLAlchemy puts back."""
    if _KEPT in connection.info or "isolation_level" in connection.get_execution_options():
        return
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        put_back_behind(connection.engine, connection.info, of_psycopg(driver))
    elif isinstance(driver, psycopg.AsyncConnection):
        if driver.autocommit:
            put_back_behind(connection.engine, connection.info, _commits_by_itself)
    elif connection.dialect.name in _MYSQL:
        put_back_behind(connection.engine, connection.info, _of_mysql(connection))


def put_back_behind(engine: Engine, info: MutableMapping[Any, Any], put_back: PutBack) -> None:
    """Put something back when the session returns to its pool, behind what SQLAlchemy resets there."""
    if not event.contains(engine.pool, "checkin", _put_back):
        event.listen(engine.pool, "checkin", _put_back)
    info[_KEPT] = put_back


def of_psycopg(driver: psycopg.Connection[Any]) -> PutBack:
    """Return what puts a session of psycopg's back to how it is now."""
    before = driver.autocommit, driver.isolation_level, driver.read_only, driver.deferrable

    def put_back(_: object) -> None:
        driver.autocommit, driver.isolation_level, driver.read_only, driver.deferrable = before

    return put_back


def _commits_by_itself(session: Any) -> None:  # SQLAlchemy's form of an asynchronous one
    session.autocommit = True


def _of_mysql(connection: Connection) -> PutBack:
    dialect, dbapi = connection.dialect, connection.connection.dbapi_connection
    assert dbapi is not None
    commits, level = dialect.detect_autocommit_setting(dbapi), dialect.get_isolation_level(dbapi)

    def put_back(session: Any) -> None:  # of any driver
        if level != dialect.default_isolation_level:
            dialect.set_isolation_level(session, level)
        if commits:
            session.autocommit(True)

    return put_back


def _put_back(dbapi_connection: Any, record: Any) -> None:  # of any driver
    put_back = record.info.pop(_KEPT, None)
    if put_back is None or dbapi_connection is None:
        return
    try:
        put_back(dbapi_connection)
    except Exception as error:  # noqa: BLE001  # whatever it is: nobody may get it back with our settings
        record.invalidate(error)
