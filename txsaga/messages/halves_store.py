"""
The hot path on PostgreSQL: halves, plain messages and decisions, a batch of all three in one commit.

Each batch has exclusive use of a session: threads and event loops run theirs concurrently. If a batch never runs, its
callers got no answer and none of it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Engine, any_, func, literal, select

from txsaga.core.decision import Decision
from txsaga.core.identity import HalfId, StoreId
from txsaga.core.records import Content, End, Half, HalfView, HalvesWritten
from txsaga.core.retry import PATIENCE
from txsaga.core.topic import HALF_TOPIC
from txsaga.messages.half_session import HalfSession
from txsaga.messages.hot_statements import Hot
from txsaga.store import schema
from txsaga.store.connection import by_index, transaction
from txsaga.store.pipeline import Pool

_half = schema.half.c
SHOWN = (_half.txid, _half.part, _half.attempt, _half.qid, _half.chunk, _half.n, _half.born, _half.keyed)
"""Columns of a half to read: never the body, which may be megabytes."""


class HalfStore:
    """Stores and decides many transactions in one durable step.

    If a batch raises, nothing was stored; the store has verified that by reading back.
    """

    def __init__(self, engine: Engine, hot: Hot, identity: StoreId, patience: float = PATIENCE) -> None:
        self._engine, self._hot, self._identity = engine, hot, identity
        self._sessions = Pool(lambda: HalfSession(engine, hot, identity, patience))

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves in the given order, plain ones together with their COMMIT, and write decisions.

        A half with `due` goes on the schedule, undecided; a ROLLBACK that `recalls` removes it.

        A half is durable and invisible when this returns. The first durable decision is final. Refused (an error in
        its position, nothing changed): an end of a half that does not exist or that belongs to another group or a
        keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        if not halves and not ends:
            return HalvesWritten([], [])
        with self._sessions.taken() as session:
            return session.write(halves, ends)

    def views(self, txid: int) -> Sequence[HalfView]:
        """Return the stored halves of a transaction; none for an unknown one."""
        return list(self.views_of([txid]).get(txid, ()))

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Return the stored halves of several transactions."""
        h, q, t, o, g = schema.half, schema.queue, schema.topic, schema.op, schema.producer_group
        p, sender = schema.part, func.coalesce(g.c.name, "").label("group_name")
        # Looked up one by one: a join may read every decision.
        decision = select(o.c.decision).where(o.c.txid == h.c.txid).scalar_subquery().label("decision")
        winner = select(p.c.attempt).where(p.c.txid == h.c.txid, p.c.part == h.c.part).scalar_subquery().label("winner")
        query = (
            select(*SHOWN, q.c.idx, t.c.name, sender, decision, winner)
            .join_from(h, q, q.c.qid == h.c.qid)
            .join(t, t.c.id == q.c.topic)
            .outerjoin(g, g.c.id == h.c.pgroup)
            .where(h.c.txid == any_(literal(txids, ARRAY(BigInteger))))
            .order_by(h.c.txid, h.c.part, h.c.attempt, h.c.qid, h.c.chunk)
        )
        with by_index(self._engine) as connection:
            rows = connection.execute(query).all()
        return {txid: tuple(map(self._view, lying)) for txid, lying in groupby(rows, lambda row: row.txid)}

    def contents(self, txid: int) -> Sequence[Content]:
        """Return what a transaction would deliver: its halves; for a keyed one, those of the attempts that count."""
        with transaction(self._engine) as connection:
            rows = connection.exec_driver_sql(self._hot.contents, {"txid": txid})
            return [Content(topic, bytes(body)) for topic, body in rows]

    def close(self) -> None:
        """Close the idle sessions; those in use are closed when they are returned."""
        self._sessions.close()

    def _view(self, row: Any) -> HalfView:
        counts = not row.keyed or row.winner == row.attempt  # halves of a superseded attempt never count
        committed = row.decision == Decision.COMMIT and counts
        half = HalfId(self._identity, row.txid, row.part, row.attempt, row.qid, row.chunk, 0)
        return HalfView(
            id=half.encode(),
            topic=row.name if committed else HALF_TOPIC,
            queue=row.idx if committed else 0,
            real_topic=row.name,
            real_queue=row.idx,
            group=row.group_name,
            prepared=row.decision is None,
            flag="NOT" if row.decision is None else "COMMIT" if committed else "ROLLBACK",
            count=row.n,
            born=row.born,
        )
