"""
Sends inside the caller's own transaction: message and decision are rows of the caller's commit.

There is no half and nothing to check: if the caller's transaction rolls back, the message never was. The
connection must lead to the very store; on any other database the message would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeGuard

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.evidence.sessions import refuse_autocommit
from txsaga.adapters.postgres import founding
from txsaga.adapters.postgres.connection import translated, translating
from txsaga.engine.half import as_message
from txsaga.engine.kernel import Kernel
from txsaga.engine.outbox import Outbox
from txsaga.errors import ConfigError
from txsaga.model.arguments import check_kind
from txsaga.model.identity import StoreId
from txsaga.model.layout import lay_out_one
from txsaga.model.message import Message
from txsaga.model.records import Row
from txsaga.model.topic import Way

SEND = """
WITH h AS (INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body)
           VALUES (nextval('{s}.tx_seq'), {pgroup}, {qid}, 0, {n}, {body}) RETURNING txid)
INSERT INTO {s}.op (txid, decision) SELECT txid, 1 FROM h RETURNING txid"""
# The answer is the caller's COMMIT, so that must be durable whatever the session says.
DURABLE = (
    ", CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
    " THEN set_config('synchronous_commit', 'on', true) END"
)
CALL = "SELECT txid" + DURABLE + " FROM {s}.send(CAST({pgroup} AS int4), {qid}, {n}, {body})"
OWNER = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(:half)"

A_CONNECTION = "give a SQLAlchemy Connection, of a session session.connection()"
RECOGNISED, CURSOR = "txsaga home", "txsaga cursor"
NAMES = ("pgroup", "qid", "n", "body")
ADVICE = (
    "this connection does not lead to the home database of the broker; "
    "use tx.local(…) with a registered resource for work in another database"
)


class JoinedSends:
    """Sends on one connection of the caller's."""

    def __init__(self, connection: Connection, namespace: str, kernel: Kernel, group: int) -> None:
        check_kind(connection, Connection, "the connection", A_CONNECTION)
        refuse_autocommit(connection, "your work and a message")
        self._connection, self._kernel, self._group = connection, kernel, group
        self._statement = _send(namespace, self._require_home(namespace))

    def send(self, topic: str | Message, body: bytes = b"", **options: object) -> int:
        """Add a message to the caller's transaction; return its number."""
        message, qid = self._kernel.topics.admit(as_message(topic, body, options), Way.JOIN)
        return self._store([Row(qid, 0, 1, lay_out_one(message))])[0]

    def send_many(
        self,
        topic: str,
        bodies: list[bytes],
        *,
        keys: list[str] | None = None,
        tags: list[str] | None = None,
    ) -> list[int]:
        """Add many messages of one topic as columns; return their numbers, one per chunk."""
        outbox = Outbox(self._kernel.topics, Way.JOIN)
        outbox.add_many(topic, bodies, keys, tags)
        return self._store(outbox.take())

    def _store(self, rows: Sequence[Row]) -> list[int]:
        with translating():
            execute = self._execute()
            return [int(execute((self._group, row.qid, row.count, row.body)).fetchone()[0]) for row in rows]

    def _execute(self) -> Callable[[tuple[int, int, int, bytes]], Any]:
        """Choose the shortest way to the server: a cursor of the driver's, once SQLAlchemy knows of the transaction."""
        connection, (short, long) = self._connection, self._statement
        driver = connection.connection.driver_connection
        if not _is_short(driver) or not connection.in_transaction():
            return lambda row: connection.execute(long, dict(zip(NAMES, row, strict=True)))
        cursor = connection.info.get(CURSOR)
        if cursor is None or cursor.closed or cursor.connection is not driver:
            cursor = connection.info[CURSOR] = driver.cursor(binary=True, row_factory=tuple_row)
        return lambda row: _executed(connection, cursor, short, row)

    def _require_home(self, namespace: str) -> bool:
        """Make sure that the connection leads to the store; tell whether the namespace is its user's own."""
        identity = self._kernel.store.registry.identity
        # A pooled connection stays with its server, so one look at each is enough.
        recognised: dict[object, bool] = self._connection.info.setdefault(RECOGNISED, {})
        if (identity, namespace) not in recognised:
            self._recognise(namespace, identity)
            owner = self._connection.execute(text(OWNER), {"half": f'"{namespace}".half'}).scalar_one()
            recognised[identity, namespace] = bool(owner)
        return recognised[identity, namespace]

    def _recognise(self, namespace: str, identity: StoreId) -> None:
        if self._connection.dialect.name != "postgresql":
            raise ConfigError(ADVICE)
        try:
            # In a savepoint: a wrong database must not spoil the caller's transaction.
            with self._connection.begin_nested():
                row = self._connection.execute(text(founding.at_home(namespace))).one_or_none()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") in ("42P01", "3F000"):
                raise ConfigError(ADVICE) from error
            raise translated(error) from error
        if row is None or (row[0], row[1]) != (identity.uuid, identity.incarnation) or not row[2]:
            raise ConfigError(ADVICE)


def _is_short(driver: object) -> TypeGuard[psycopg.Connection[Any]]:
    return isinstance(driver, psycopg.Connection) and not issubclass(driver.cursor_factory, psycopg.ClientCursor)


def _executed(
    connection: Connection, cursor: psycopg.Cursor[Any], sql: str, row: tuple[object, ...]
) -> psycopg.Cursor[Any]:
    """Run a statement past SQLAlchemy, which must know of a session that was lost: it would roll it back."""
    try:
        return cursor.execute(sql.encode(), row, prepare=True)
    except psycopg.Error as error:
        if cursor.connection.closed:
            connection.invalidate(error)
        raise


@cache
def _send(namespace: str, owner: bool) -> tuple[str, TextClause]:
    """Write the statement for psycopg, and for every other driver."""
    schema, sql = f'"{namespace}"', SEND + DURABLE if owner else CALL
    short = dict.fromkeys(NAMES, "%s") | {"body": "%b"}
    return (
        sql.format(s=schema, **short),
        text(sql.format(s=schema, **{name: f":{name}" for name in NAMES})),
    )
