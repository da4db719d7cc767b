"""The hot path in memory: each call holds the lock, so a batch is one step for everybody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from tests.oracle.home import Home
from tests.oracle.names import Names
from tests.oracle.rows import Kept, Op, StoredHalf
from txsaga.checkback.profile import MIN_AGE
from txsaga.core.decision import Decision, ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.records import Content, DecisionOutcome, End, Half, HalfView, HalvesWritten, Receipt
from txsaga.core.topic import HALF_TOPIC
from txsaga.errors import (
    EndRefused,
    InvalidMessage,
    TransactionError,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.messages.halves_store import HalfStore


def effective(seconds: int | None) -> int:
    """Return the effective immunity: never less than the minimum age."""
    return MIN_AGE if seconds is None else max(seconds, MIN_AGE)


class MemoryHalves(HalfStore):
    """Plain halves, plain messages and bare decisions."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home = home
        self._names = names

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves, numbered in the order given, and write decisions; the first one stands."""
        with self._home.writing() as kept:
            self._names.require_topics(row.qid for half in halves for row in half.rows)
            receipts = [self._store(kept, half) for half in halves]
            return HalvesWritten(receipts, [self._decide(kept, end) for end in ends])

    def views(self, txid: int) -> Sequence[HalfView]:
        """Show the halves of a transaction as they lie."""
        with self._home.lock:
            halves = sorted(self._home.kept.halves.get(txid, ()), key=lambda half: half.place)
            return [self._view_of(self._home.kept, half) for half in halves]

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Return the stored halves of several transactions."""
        return {txid: tuple(self.views(txid)) for txid in txids}

    def contents(self, txid: int) -> Sequence[Content]:
        """Read what a transaction would deliver."""
        with self._home.lock:
            kept = self._home.kept
            halves = sorted(kept.halves.get(txid, ()), key=lambda half: half.place)
            return [Content(self._names.place(h.row.qid)[0], h.row.body) for h in halves if kept.counts(h)]

    def _store(self, kept: Kept, half: Half) -> Receipt | TxSagaError:
        if self._home.rejecting and not half.plain and half.due is None:
            return TransactionsRejected(str(self._home.identity))
        wrong = self._names.wrong_rows(half.rows)
        if wrong is not None or not half.rows:
            return wrong or InvalidMessage("a half without a row can't be stored")
        txid, born = self._home.next_txid(), self._home.now()
        for row in half.rows:
            kept.lie(StoredHalf(txid, 0, 0, half.group, row, born, evidence=half.evidence, immunity=half.immunity))
        if half.due is not None:
            kept.scheduled[txid] = half.due.at or born + (half.due.delay or timedelta(0))
        if half.plain:
            kept.decide(Op(txid, Decision.COMMIT, False))
        return Receipt(txid, half.group, self._home.token(half.group, txid))

    def _decide(self, kept: Kept, end: End) -> DecisionOutcome | TxSagaError:
        try:
            half = self._half_of(kept, end)
        except TransactionError as refused:
            return refused
        standing = kept.ops.get(end.txid)
        if standing is not None:
            return DecisionOutcome(end.txid, standing.decision, won=False)
        if not end.from_check and self._too_late(half):
            reason = f"the immunity of transaction {end.txid} is over; its check decides it"
            return EndRefused(ReplyCode.ILLEGAL_OPERATION, reason)
        kept.decide(Op(end.txid, end.decision, end.from_check))
        if end.recalls:
            kept.scheduled.pop(end.txid, None)
        return DecisionOutcome(end.txid, end.decision, won=True)

    def _half_of(self, kept: Kept, end: End) -> StoredHalf:
        if end.txid in kept.lives:
            raise EndRefused(ReplyCode.SYSTEM_ERROR, f"transaction {end.txid} is keyed; its own decide ends it")
        halves = kept.halves.get(end.txid)
        if not halves:
            raise EndRefused(ReplyCode.SYSTEM_ERROR, f"half not found: no transaction {end.txid} is stored here")
        if halves[0].group != end.group:
            raise EndRefused(ReplyCode.SYSTEM_ERROR, f"producer group wrong: transaction {end.txid} is another group's")
        if end.token != self._home.token(end.group, end.txid):
            raise UnknownTransaction(f"the token is not that of transaction {end.txid}")
        return halves[0]

    def _too_late(self, half: StoredHalf) -> bool:
        if half.immunity is None:
            return False
        return self._home.now() >= half.born + timedelta(seconds=effective(half.immunity))

    def _view_of(self, kept: Kept, half: StoredHalf) -> HalfView:
        op = kept.ops.get(half.txid)
        real = op is not None and op.decision is Decision.COMMIT and kept.counts(half)
        topic, index = self._names.place(half.row.qid)
        where = (half.txid, half.part, half.attempt, half.row.qid, half.row.chunk)
        return HalfView(
            id=HalfId(self._home.identity, *where, 0).encode(),
            topic=topic if real else HALF_TOPIC,
            queue=index if real else 0,
            real_topic=topic,
            real_queue=index,
            group=self._names.group_name(half.group),
            prepared=op is None,
            flag="NOT" if op is None else "COMMIT" if real else "ROLLBACK",
            count=half.row.count,
            born=half.born,
        )
