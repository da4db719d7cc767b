"""
The inbox: a row for each message whose effect is in this database, written in the effect's own transaction.

Only one transaction can insert the row; a duplicate waits for it and gets `AlreadyDone`. The inbox must never commit or
roll back, and never creates its table in the caller's transaction: MySQL would commit it. If the process dies before
the caller's COMMIT, neither row nor effect exists, and the message is delivered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from types import MappingProxyType
from weakref import WeakSet

from sqlalchemy import AssertionPool, Connection, Engine, Pool, SingletonThreadPool, StaticPool, text
from sqlalchemy.exc import DBAPIError

from txsaga.consume.delivery import Delivery
from txsaga.core.arguments import check_duration, check_kind
from txsaga.core.failure import on_failure
from txsaga.core.message import Delivered
from txsaga.core.topic import check_name
from txsaga.errors import AlreadyDone, ConfigError, EvidenceMissing, TransactionError
from txsaga.evidence.driver_errors import edge
from txsaga.evidence.local_transaction import mark_of
from txsaga.evidence.location import create, has_inbox, missing, resource_name, sees_inbox
from txsaga.evidence.schema import INBOX, PAST, statements
from txsaga.evidence.sessions import IDLE, IN_ERROR, begin_now, refuse_autocommit, session_state
from txsaga.evidence.statements import MARKED

LONGEST = timedelta(days=36_500)

_VALUES = f"{INBOX} (grp, message) values (:group, :message)"
# None fails on a duplicate: on PostgreSQL that would abort the caller's transaction.
_INSERT: Mapping[str, str] = MappingProxyType(
    {
        "postgresql": f"insert into {_VALUES} on conflict do nothing returning {MARKED}",
        "mysql": f"insert ignore into {_VALUES}",
        "mariadb": f"insert ignore into {_VALUES}",
        "sqlite": f"insert or ignore into {_VALUES}",
    }
)
_ROW = f"from {INBOX} where grp = :group and message = :message"

_pools: WeakSet[Pool] = WeakSet()
"""Pools whose database is known to have the table."""


def inbox(
    connection: Connection, message: Delivery | Delivered, *, group: str | None = None
) -> AbstractContextManager[None]:
    """Do the effect of a message once; `AlreadyDone` if this database has it for this group."""
    advice = "give the SQLAlchemy Connection that the effect goes through; of a Session, session.connection()"
    check_kind(connection, Connection, "the connection", advice)
    check_kind(message, (Delivery, Delivered), "the message", "give one that a consumer or a stream gave")
    if group is None:
        if not isinstance(message, Delivery):
            raise ConfigError("a message of a stream has no consumer group; pass group=…")
        group = message.group
    check_name(group, what="group")
    return _entered(connection, {"group": group, "message": message.id})


def forget(engine: Engine, older_than: timedelta, name: str | None = None) -> int:
    """Delete the rows of messages whose effect is older, by the database's clock; return how many."""
    check_duration(older_than, "older_than", LONGEST)
    resource, dialect = name or resource_name(engine), engine.dialect.name
    statements(dialect)  # refuses other databases
    if not has_inbox(engine, resource):
        raise missing(engine, resource)
    with edge(resource), engine.begin() as connection:
        past = PAST[dialect].format(int(older_than.total_seconds()))
        return connection.exec_driver_sql(f"delete from {INBOX} where at < {past}").rowcount


@contextmanager
def _entered(connection: Connection, row: dict[str, str]) -> Iterator[None]:
    resource = resource_name(connection.engine)
    with edge(resource):
        statements(connection.dialect.name)  # refuses other databases
        refuse_autocommit(connection)
        _require_table(connection, resource)
        begin_now(connection)
        if not _inserted(connection, row):
            raise AlreadyDone(row["message"], row["group"])
    opened, mark = connection.get_transaction(), mark_of(connection)

    def forget() -> None:
        if connection.get_transaction() is opened:
            with suppress(Exception):  # on an error here nothing of this transaction can be committed either
                connection.execute(text(f"delete {_ROW}"), row)

    with on_failure(forget):
        yield
        if connection.get_transaction() is not opened:
            raise TransactionError(
                f"the transaction of message {row['message']} was ended inside the block of its inbox; "
                "leave commit and rollback to the block around it"
            )
        with edge(resource):
            _require_row(connection, row, mark)


def _inserted(connection: Connection, row: dict[str, str]) -> bool:
    try:
        answer = connection.execute(text(_INSERT[connection.dialect.name]), row)
    except DBAPIError:
        _pools.discard(connection.engine.pool)  # the table may be gone: the next call checks again
        raise
    return answer.first() is not None if answer.returns_rows else answer.rowcount > 0


def _require_row(connection: Connection, row: dict[str, str], mark: str | None) -> None:
    """Raise if the row is gone: servers roll back a whole transaction on some errors."""
    state = session_state(connection)
    # If it can be inserted again, it was lost. Reading it would fail in a MySQL snapshot older than the table.
    marked = mark is not None and mark_of(connection) == mark
    if state in (IDLE, IN_ERROR) or (not marked and _inserted(connection, row)):
        raise TransactionError(
            f"the database rolled the transaction of message {row['message']} back inside the block of its inbox; let "
            "that error leave the block"
        )


def _require_table(connection: Connection, resource: str) -> None:
    engine = connection.engine
    if engine.pool in _pools:
        return
    if not sees_inbox(connection):
        _require_room_beside(connection, resource)
        create(engine, resource)
        if not sees_inbox(connection):  # PostgreSQL: this connection has another search path
            raise missing(engine, resource)
    _pools.add(engine.pool)


def _require_room_beside(connection: Connection, resource: str) -> None:
    """Raise if creating the table would wait for this transaction, or end it."""
    shared = isinstance(connection.engine.pool, StaticPool | SingletonThreadPool | AssertionPool)
    driver = connection.connection.driver_connection
    if shared or getattr(driver, "in_transaction", False):
        raise EvidenceMissing(
            f"resource {resource!r} has no {INBOX} yet, and it can't be created during this transaction; create it in "
            "advance with `txsaga barrier create URL`, or enter the inbox first in the transaction"
        )
