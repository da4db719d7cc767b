"""
Sends inside the caller's own transaction: message and decision are rows of the caller's commit.

There is no half message and nothing to check: if the caller's transaction rolls back, the message never existed. The
connection must lead to this store; in any other database the message would be lost silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, Unpack

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError

from txsaga.core.arguments import check_kind
from txsaga.core.fibers import Loops, current_fiber
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Column, Message, SendOptions, as_message
from txsaga.core.topic import SendKind
from txsaga.errors import ConfigError
from txsaga.evidence.sessions import PLAIN, refuse_autocommit
from txsaga.messages.message_buffer import Outbox
from txsaga.store import founding, sql_files
from txsaga.store.connection import translated, translating

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from txsaga.core.identity import StoreId
    from txsaga.core.kernel import Kernel

SQL = sql_files.read("messages/sql/joined.sql")

A_CONNECTION = "give a SQLAlchemy Connection or AsyncConnection, of a session session.connection()"
RECOGNISED, CURSOR = "txsaga home", "txsaga cursor"
ADVICE = (
    "this connection does not lead to the home database of the broker; "
    "use tx.local(…) with a registered resource for work in another database"
)

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Cursor = psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]


class JoinedSends:
    """Sends on one of the caller's connections."""

    def __init__(self, connection: Connection, kernel: Kernel, group: int) -> None:
        check_kind(connection, Connection, "the connection", A_CONNECTION)
        refuse_autocommit(connection, "your work and a message")
        self._connection, self._kernel, self._group = connection, kernel, group
        self._info: dict[Any, Any] = connection.info
        namespace = kernel.store.namespace
        self._statement = _send(namespace, self._require_home(namespace), group)

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> int:
        """Add a message to the caller's transaction; return its transaction number."""
        message, qid = self._kernel.topics.admit(as_message(topic, body, options), SendKind.JOIN)
        stored = lay_out_one(message)
        with translating():
            cursor = self._cursor()
            return self._store(qid, 1, stored) if cursor is None else self._store_one(cursor, qid, stored)

    def send_many(self, topic: str, bodies: Sequence[bytes], *, keys: Column = None, tags: Column = None) -> list[int]:
        """Add many messages of one topic as columns; return their transaction numbers, one per chunk."""
        outbox = Outbox(self._kernel.topics, SendKind.JOIN)
        outbox.add_many(topic, bodies, keys=keys, tags=tags)
        with translating():
            return [self._store(row.qid, row.count, row.body) for row in outbox.take()]

    def _store(self, qid: int, count: int, body: bytes) -> int:
        values = {"pgroup": self._group, "qid": qid, "n": count, "body": body}
        return int(self._connection.execute(self._statement.any, values, execution_options=PLAIN).scalar_one())

    def _store_one(self, cursor: Cursor, qid: int, body: bytes) -> int:
        """Store a message bypassing SQLAlchemy; invalidate a lost session, or SQLAlchemy would roll it back."""
        fiber, values = current_fiber(), (qid, body)
        try:
            if isinstance(cursor, psycopg.Cursor):
                return int(cursor.execute(self._statement.one, values, prepare=True).fetchone()[0])  # type: ignore[index]
            assert fiber is not None
            return int(fiber.wait(_stored(cursor, self._statement.one, values))[0])
        except psycopg.Error as error:
            if cursor.connection.closed:
                self._connection.invalidate(error)
            raise

    def _cursor(self) -> Cursor | None:
        """Return a driver cursor, the fastest path to the server, if SQLAlchemy has begun the transaction."""
        if not self._connection.in_transaction():
            return None
        driver, cursor = self._connection.connection.driver_connection, self._info.get(CURSOR)
        if cursor is None or cursor.connection is not driver or cursor.closed:
            if not _is_short(driver):
                return None
            cursor = self._info[CURSOR] = driver.cursor(binary=True, row_factory=tuple_row)
        return cursor if isinstance(cursor, psycopg.Cursor) or current_fiber() is not None else None

    def _require_home(self, namespace: str) -> bool:
        """Raise unless the connection leads to the store; return whether its user owns the namespace."""
        identity = self._kernel.store.registry.identity
        # A pooled connection keeps its server, so one check of each is enough.
        recognised: dict[str, tuple[StoreId, bool]] = self._info.setdefault(RECOGNISED, {})
        known = recognised.get(namespace)
        if known is None or known[0] != identity:
            self._recognise(namespace, identity)
            owner = self._connection.scalar(
                text(SQL["owner"]), {"half": f'"{namespace}".half'}, execution_options=PLAIN
            )
            known = recognised[namespace] = identity, bool(owner)
        return known[1]

    def _recognise(self, namespace: str, identity: StoreId) -> None:
        if self._connection.dialect.name != "postgresql":
            raise ConfigError(ADVICE)
        try:
            # In a savepoint: a wrong database must not abort the caller's transaction.
            with self._connection.begin_nested():
                row = self._connection.execute(text(founding.at_home(namespace)), execution_options=PLAIN).one_or_none()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") in ("42P01", "3F000"):
                raise ConfigError(ADVICE) from error
            raise translated(error) from error
        if row is None or (row[0], row[1]) != (identity.uuid, identity.incarnation) or not row[2]:
            raise ConfigError(ADVICE)


class AsyncJoined:
    """Sends on one connection of an asynchronous engine."""

    def __init__(self, opened: Callable[[], JoinedSends], in_loop: Loops) -> None:
        self._opened, self._in_loop = opened, in_loop

    async def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> int:
        """Add a message; it becomes visible with the caller's commit."""
        return await self._in_loop(lambda: self._opened().send(topic, body, **options))

    async def send_many(
        self, topic: str, bodies: Sequence[bytes], *, keys: Column = None, tags: Column = None
    ) -> list[int]:
        """Add many messages of one topic as columns."""
        return await self._in_loop(lambda: self._opened().send_many(topic, bodies, keys=keys, tags=tags))


def join(connection: Connection | AsyncConnection, kernel: Kernel, group: int) -> JoinedSends | AsyncJoined:
    """Send inside the transaction of a connection of either kind."""
    # The class of an AsyncConnection needs an extra.
    within: Any = getattr(connection, "sync_connection", connection)
    if within is None and connection is not None:
        raise ConfigError("this AsyncConnection is not open; use `async with engine.begin() as connection`")
    joined = partial(JoinedSends, within, kernel, group)
    return joined() if within is connection else AsyncJoined(joined, kernel.in_loop)


def _is_short(driver: object) -> TypeGuard[Driver]:
    binds_itself = psycopg.ClientCursor, psycopg.AsyncClientCursor
    return isinstance(driver, psycopg.Connection | psycopg.AsyncConnection) and not issubclass(
        driver.cursor_factory, binds_itself
    )


async def _stored(cursor: psycopg.AsyncCursor[Any], statement: bytes, values: tuple[int, bytes]) -> Any:
    await cursor.execute(statement, values, prepare=True)
    return await cursor.fetchone()


class _Statement(NamedTuple):
    one: bytes  # for one message of a group, with the constants already in the text
    any: TextClause


@cache
def _send(namespace: str, owner: bool, group: int) -> _Statement:
    schema, sql = f'"{namespace}"', SQL["send_durably" if owner else "call"]
    one = sql.format(s=schema, pgroup=group, qid="%s", n=1, body="%b")
    return _Statement(one.encode(), text(sql.format(s=schema, pgroup=":pgroup", qid=":qid", n=":n", body=":body")))
