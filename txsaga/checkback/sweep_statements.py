"""
The sweep: each half message is examined once when it is old enough, and once more much later.

The second pass finds half messages whose number was taken long before their commit. Keyed transactions are found by
their row: closed ones soon, open ones when their owner sent no heartbeat for a lease. If the sweep never runs,
undecided half messages stay invisible and unchecked, and their partitions are never dropped.
"""

from datetime import timedelta

from sqlalchemy import Connection, Float, cast, func, literal, or_, select
from sqlalchemy.dialects.postgresql import insert

from txsaga.checkback.profile import LEASE, MIN_AGE
from txsaga.core.lifecycle import TxState
from txsaga.messages.hot_statements import Hot
from txsaga.store import schema, sql_files

SQL = sql_files.read("checkback/sql/doubt.sql")

LOOKS = ("sweep", "second look")
"""Their checkpoints."""
SECOND_LOOK = timedelta(minutes=10)
RANGE = 200_000
"""Numbers examined per sweep and pass: a round has a bound."""


def sweep(connection: Connection, hot: Hot, namespace: str, age: timedelta) -> int:
    """Put half messages and closed transactions without a decision on the list of doubts; return how many."""
    forget(connection, namespace)
    connection.exec_driver_sql(hot.ghosts)
    first, second = LOOKS
    shortest = _shortest(connection, age)
    found = _look(connection, hot, first, age, behind=shortest)
    found += _look(connection, hot, second, age, behind=max(age, SECOND_LOOK))
    return found + _left_alone(connection, age, shortest)


def forget(connection: Connection, namespace: str) -> None:
    """Remove from the list what has been decided since; one with an open question is removed with the question."""
    connection.exec_driver_sql(SQL["forget"].format(s=namespace))


def _shortest(connection: Connection, age: timedelta) -> timedelta:
    """Return the minimum age of any group: half messages are examined then, and due at their own group's age."""
    said = cast(schema.producer_group.c.checks["min_age"].astext, Float)
    least = connection.execute(select(func.min(said))).scalar()
    return age if least is None else min(age, timedelta(seconds=least))


def _look(connection: Connection, hot: Hot, name: str, age: timedelta, *, behind: timedelta) -> int:
    point = schema.checkpoint
    connection.execute(insert(point).values(name=name, txid=0).on_conflict_do_nothing())
    query = select(point.c.txid).where(point.c.name == name).with_for_update(skip_locked=True)
    low = connection.execute(query).scalar()
    if low is None:
        return 0
    tick = schema.tick
    newest = select(tick.c.last_txid).where(tick.c.at <= func.clock_timestamp() - behind)
    high = min(connection.execute(newest.order_by(tick.c.id.desc()).limit(1)).scalar() or 0, low + RANGE)
    if high <= low:
        return 0
    values = {"lo": low, "hi": high, "age": age.total_seconds(), "least": MIN_AGE}
    found = connection.exec_driver_sql(hot.sweep, values).rowcount
    connection.execute(point.update().where(point.c.name == name).values(txid=high))
    return found


def _left_alone(connection: Connection, age: timedelta, shortest: timedelta) -> int:
    tx, doubt, group = schema.tx, schema.doubt, schema.producer_group
    closed = [TxState.ENDED.value, TxState.PREPARED.value]
    now = func.clock_timestamp()
    said = func.make_interval(0, 0, 0, 0, 0, 0, cast(group.c.checks["min_age"].astext, Float))
    lease = func.make_interval(0, 0, 0, 0, 0, 0, func.coalesce(tx.c.lease, LEASE.total_seconds()))
    found = (
        select(tx.c.txid, tx.c.pgroup, literal(True))
        .outerjoin(group, group.c.id == tx.c.pgroup)
        .where(
            tx.c.state.in_([TxState.ACTIVE.value, *closed]),  # what the index covers
            tx.c.touched <= now - shortest,
            tx.c.touched <= now - func.coalesce(said, age),
            or_(tx.c.state.in_(closed), tx.c.touched <= now - lease),
            or_(tx.c.coordinator.is_(None), tx.c.state != TxState.PREPARED.value),  # what voted yes waits for its store
        )
    )
    statement = insert(doubt).from_select(["txid", "pgroup", "keyed"], found)
    return connection.execute(statement.on_conflict_do_nothing()).rowcount
