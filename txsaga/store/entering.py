"""
Open a store with one query: its identity, whether its schema is this program's, and the rights of the login.

If anything is wrong, the same is queried piece by piece, and the failing check gives the remedy.
Without this module every process would send five queries before its first work.
"""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import ProgrammingError

from txsaga.core.identity import StoreId
from txsaga.store import founding, migrate, sql_files
from txsaga.store.connection import is_lost
from txsaga.store.right import EVERY_RIGHT, SIGN, Login, Right

SQL = sql_files.read("store/sql/founding.sql")


def enter(connection: Connection, namespace: str) -> tuple[StoreId, Login]:
    """Return the store's identity and the login's rights, or raise what is wrong with schema, place or server."""
    return _at_once(connection, namespace) or _one_by_one(connection, namespace)


def _at_once(connection: Connection, namespace: str) -> tuple[StoreId, Login] | None:
    s = f'"{namespace}"'
    server = founding.SERVER.format(namespace=namespace)
    question = SQL["enter"].format(s=s, server=server, home=founding.HOME, oldest=migrate.OLDEST)
    try:
        rows = connection.exec_driver_sql(question, {"rights": [*Right], "sign": f"{s}.{SIGN}"}).all()
    except ProgrammingError as error:  # a table or a right is missing
        if is_lost(error):
            raise
        connection.rollback()
        return None
    if len(rows) != 1 or rows[0][0] != migrate.newest():
        return None
    _, uuid, incarnation, births, owner, rights = rows[0]
    return StoreId(uuid, incarnation, tuple(births)), Login(
        owner, EVERY_RIGHT if owner else frozenset(map(Right, rights))
    )


def _one_by_one(connection: Connection, namespace: str) -> tuple[StoreId, Login]:
    from txsaga.store import granting

    migrate.check(connection, namespace)
    return founding.recognise(connection), granting.login(connection, namespace)
