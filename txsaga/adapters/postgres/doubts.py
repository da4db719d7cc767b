"""
The sweep: each half is looked at once when it is old enough, and once more much later.

The second look finds halves whose number was taken long before their commit. If the sweep never runs,
undecided halves stay invisible and unasked about, and their partitions are never dropped.
"""

from datetime import timedelta

from sqlalchemy import Connection, delete, exists, func, literal, select, text
from sqlalchemy.dialects.postgresql import insert

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.hot import Hot
from txsaga.model.lifecycle import TxState

SECOND_LOOK = timedelta(minutes=10)
RANGE = 200_000
"""Numbers looked at per sweep and look: a round has a bound."""


def sweep(connection: Connection, hot: Hot, age: timedelta) -> int:
    """Put halves and closed transactions without a decision on the list of doubts; return how many."""
    settled = exists().where(schema.op.c.txid == schema.doubt.c.txid)
    connection.execute(delete(schema.doubt).where(settled))  # decided by somebody since
    found = _look(connection, hot, "sweep", age)
    found += _look(connection, hot, "second look", max(age, SECOND_LOOK))
    return found + _closed(connection, age)


def _look(connection: Connection, hot: Hot, name: str, age: timedelta) -> int:
    point = schema.checkpoint
    connection.execute(insert(point).values(name=name, txid=0).on_conflict_do_nothing())
    query = select(point.c.txid).where(point.c.name == name).with_for_update(skip_locked=True)
    low = connection.execute(query).scalar()
    if low is None:
        return 0
    tick = schema.tick
    newest = select(tick.c.last_txid).where(tick.c.at <= func.clock_timestamp() - age)
    high = min(connection.execute(newest.order_by(tick.c.id.desc()).limit(1)).scalar() or 0, low + RANGE)
    if high <= low:
        return 0
    sql = text(hot.sweep.replace("%(lo)s", ":lo").replace("%(hi)s", ":hi"))
    found = connection.execute(sql, {"lo": low, "hi": high}).rowcount
    connection.execute(point.update().where(point.c.name == name).values(txid=high))
    return found


def _closed(connection: Connection, age: timedelta) -> int:
    tx, doubt = schema.tx, schema.doubt
    states = [TxState.ENDED.value, TxState.PREPARED.value]
    closed = select(tx.c.txid, tx.c.pgroup, literal(True)).where(
        tx.c.state.in_(states), tx.c.touched <= func.clock_timestamp() - age
    )
    statement = insert(doubt).from_select(["txid", "pgroup", "keyed"], closed)
    return connection.execute(statement.on_conflict_do_nothing()).rowcount
