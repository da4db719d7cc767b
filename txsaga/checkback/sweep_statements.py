"""
The sweep: each half is looked at once when it is old enough, and once more much later.

The second look finds halves whose number was taken long before their commit. Keyed transactions are found by
their row: closed ones soon, open ones when nobody has heard of their owner for a lease. If the sweep never runs,
undecided halves stay invisible and unasked about, and their partitions are never dropped.
"""

from datetime import timedelta

from sqlalchemy import Connection, Float, cast, func, literal, or_, select
from sqlalchemy.dialects.postgresql import insert

from txsaga.checkback.profile import LEASE, MIN_AGE
from txsaga.core.lifecycle import TxState
from txsaga.messages.hot_statements import Hot
from txsaga.store import schema

KEPT = """SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r"""
INTO = "INSERT INTO {s}.event (txid, at, what, who, why)"


def unlisting(doubts: str) -> str:
    """Write what takes doubts off the list, by what says which (of `d`), and keeps their checks."""
    gone = f"DELETE FROM {{s}}.doubt d {doubts} RETURNING d.txid, d.remarks"
    return f"WITH gone AS ({gone})\n{INTO}\n{KEPT}"


LOOKS = ("sweep", "second look")
"""Their checkpoints."""
SECOND_LOOK = timedelta(minutes=10)
RANGE = 200_000
"""Numbers looked at per sweep and look: a round has a bound."""


# Looked up one by one: a join would read every decision there is, each time.
FORGET = unlisting("""WHERE (SELECT o.txid FROM {s}.op o WHERE o.txid = d.txid) IS NOT NULL
   AND (SELECT q.txid FROM {s}.question q WHERE q.txid = d.txid) IS NULL""")


def sweep(connection: Connection, hot: Hot, namespace: str, age: timedelta) -> int:
    """Put halves and closed transactions without a decision on the list of doubts; return how many."""
    forget(connection, namespace)
    connection.exec_driver_sql(hot.ghosts)
    first, second = LOOKS
    shortest = _shortest(connection, age)
    found = _look(connection, hot, first, age, behind=shortest)
    found += _look(connection, hot, second, age, behind=max(age, SECOND_LOOK))
    return found + _left_alone(connection, age, shortest)


def forget(connection: Connection, namespace: str) -> None:
    """Take off the list what somebody has decided since; what a question is about goes with its question."""
    connection.exec_driver_sql(FORGET.format(s=namespace))


def _shortest(connection: Connection, age: timedelta) -> timedelta:
    """Return the least age that any group has: halves are looked at when that is over, and due at their own."""
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
            or_(tx.c.coordinator.is_(None), tx.c.state != TxState.PREPARED.value),  # what voted yes waits to be told
        )
    )
    statement = insert(doubt).from_select(["txid", "pgroup", "keyed"], found)
    return connection.execute(statement.on_conflict_do_nothing()).rowcount
