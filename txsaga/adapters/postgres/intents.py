"""Offsets that a transaction consumes, in an open block; whoever opened it commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.connection import translating
from txsaga.errors import EffectConflict, LeaseLost
from txsaga.model.decision import Decision
from txsaga.model.records import Intent

cursor, intent = schema.cursor, schema.intent


def bind(connection: Connection, wanted: Intent, member: str) -> None:
    """Bind offsets of a claimed queue to a transaction, behind those that it has bound."""
    mine = (cursor.c.grp == wanted.group, cursor.c.qid == wanted.qid)
    where = f"queue {wanted.qid} of group {wanted.group!r}"
    with translating():
        row = connection.execute(select(cursor).where(*mine).with_for_update()).one_or_none()
    if row is None or row.owner != member or row.epoch != wanted.epoch:
        raise LeaseLost(f"{where} is not {member}'s any more")
    start = _extended(connection, wanted, member)
    if start is None:
        raise LeaseLost(f"{where} is bound to another undecided transaction")
    if start != row.off:  # found now, not after local work that could not be undone
        raise LeaseLost(f"{where} stands at {row.off}, not at {start}")


def apply(connection: Connection, txid: int, decision: Decision) -> None:
    """Move the cursors of a transaction's intents where it commits, and end the intents."""
    same = (cursor.c.grp == intent.c.grp) & (cursor.c.qid == intent.c.qid)
    query = select(cursor.c.off, intent).join_from(intent, cursor, same).where(intent.c.txid == txid)
    rows = connection.execute(query.order_by(intent.c.grp, intent.c.qid).with_for_update(of=cursor)).all()
    if decision is Decision.COMMIT:
        _move(connection, rows)
    connection.execute(delete(intent).where(intent.c.txid == txid))


def _extended(connection: Connection, wanted: Intent, member: str) -> int | None:
    values = {
        "start": wanted.start,
        "end": wanted.end,
        "epoch": wanted.epoch,
        "txid": wanted.txid,
        "member": member,
    }
    statement = upsert(intent).values(grp=wanted.group, qid=wanted.qid, **values)
    again = (intent.c.end == wanted.end) & (intent.c.start <= wanted.start)
    extend = statement.on_conflict_do_update(
        index_elements=["grp", "qid"],
        set_={"end": wanted.end},
        where=(intent.c.txid == wanted.txid) & ((intent.c.end == wanted.start) | again),
    )
    with translating():
        start: int | None = connection.execute(extend.returning(intent.c.start)).scalar()
    return start


def _move(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    for row in rows:
        if row.off != row.start:
            raise EffectConflict(
                f"the cursor of group {row.grp!r} on queue {row.qid} stands at {row.off}, not {row.start}"
            )
        mine = (cursor.c.grp == row.grp, cursor.c.qid == row.qid)
        connection.execute(update(cursor).where(*mine).values(off=row.end))
