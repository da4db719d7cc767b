"""
The queues that a member owns, each with a reader at the group's position.

Ownership may be lost without notice: the store reports it at the next commit or consume, and the queue is then
forgotten here and taken again. If a chunk other than the next one were consumed, the messages before it would never be
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txsaga.consume.membership import BoundOffsets, Membership
from txsaga.consume.queue_reader import QueueReader
from txsaga.core.decision import Decision
from txsaga.core.failure import FailureHook, on_failure
from txsaga.core.identity import StoreId
from txsaga.core.layout import Batch
from txsaga.core.records import ClaimedQueue
from txsaga.core.retry import patiently
from txsaga.core.topic import Topic
from txsaga.errors import ChunkDamaged, LeaseLost, OffsetOutOfRange, OutOfOrder

if TYPE_CHECKING:
    from txsaga.consume.log_store import Log


class HeldQueues:
    """Reads the queues of a member's share."""

    def __init__(
        self,
        membership: Membership,
        bound: BoundOffsets,
        member: str,
        queues: Mapping[int, tuple[Topic, int]],
        log: Log,
        store: StoreId,
    ) -> None:
        self._membership, self._bound, self._member, self._queues = membership, bound, member, queues
        self._log, self._store = log, store
        self._readers: dict[int, tuple[int, QueueReader]] = {}
        self._turn = 0

    @property
    def claims(self) -> dict[int, ClaimedQueue]:
        """The queues by number."""
        return self._membership.claims

    def next(self) -> Batch | None:
        """Return the next chunk of the queues, which take turns."""
        if self._membership.keep():
            patiently(self.follow)
        owned = sorted(self.claims)
        for _ in owned:
            reader = self.reader(owned[self._turn % len(owned)])
            try:
                batch = reader.next()
            except (ChunkDamaged, OffsetOutOfRange):
                self._turn += 1  # the other queues are read on
                raise
            if not reader.buffered:
                self._turn += 1
            if batch is not None:
                return batch
        return None

    def seek(self, qid: int, offset: int) -> None:
        """Read a queue from another offset on."""
        if qid not in self.claims:
            raise LeaseLost(f"queue {qid} is not {self._member}'s; seek in one of {sorted(self.claims)}")
        bounds = self._log.bounds([qid])[qid]
        if not bounds.tail <= offset <= bounds.head:
            topic, index = self._queues[qid]
            raise OffsetOutOfRange(topic.name, index, offset, tail=bounds.tail, head=bounds.head)
        self.reader(qid).seek(offset)

    def reader(self, qid: int) -> QueueReader:
        """Return the reader of a queue; a queue that was taken again has a new one."""
        claim = self.claims[qid]
        epoch, reader = self._readers.get(qid, (None, None))
        if reader is None or epoch != claim.epoch:
            topic, index = self._queues[qid]
            reader = QueueReader(self._log, qid, topic.name, index, self._store, claim.offset)
            self._readers[qid] = claim.epoch, reader
        return reader

    def claim(self, batch: Batch) -> ClaimedQueue:
        """Return the claim on the queue of a chunk."""
        claim = self.claims.get(batch.qid)
        if claim is None:
            raise LeaseLost(f"{place(batch)} is not {self._member}'s any more; drop the work")
        return claim

    def due(self, batch: Batch) -> ClaimedQueue:
        """Return the claim that a chunk continues; refuse any other chunk, and deliver the due one next."""
        claim = self.claim(batch)
        if batch.offset != claim.offset:
            self.reader(batch.qid).seek(claim.offset)
            raise OutOfOrder(
                f"{place(batch)} stands at {claim.offset}, not at {batch.offset} where this chunk begins; "
                "drop this work and poll again: the chunk that is due comes next"
            )
        return claim

    def pass_over(self, claim: ClaimedQueue) -> None:
        """Count everything before a claim's offset as read."""
        self.claims[claim.qid] = claim
        self.reader(claim.qid).pass_over(claim.offset)

    def read_again(self, batch: Batch, claim: ClaimedQueue) -> None:
        """Read the unread part of a chunk again, if its queue is still owned under the same claim."""
        known = self.claims.get(batch.qid)
        if known is not None and known.epoch == claim.epoch:
            reader = self.reader(batch.qid)
            reader.seek(max(batch.offset, reader.mark))

    def follow(self) -> None:
        """Process decisions that were not reported here."""
        for txid, decision in self._bound.decided().items():
            self.decided(txid, decision)

    def decided(self, txid: int, decision: Decision) -> None:
        """Continue after a transaction's decision; a second call changes nothing."""
        for claim in self._bound.forget(txid):
            if decision is Decision.ROLLBACK:
                self.go_back(claim)

    def go_back(self, claim: ClaimedQueue) -> None:
        """Read again from a claim on, if the member still owns the queue and has passed it."""
        known = self.claims.get(claim.qid)
        if known is not None and known.epoch == claim.epoch:
            # A transaction may have bound several chunks of a queue: go back to the first of them.
            back = self.claims[claim.qid] = known._replace(offset=min(known.offset, claim.offset))
            self.reader(claim.qid).seek(back.offset)

    def or_back(self, claim: ClaimedQueue) -> FailureHook:
        """Read again from a claim on when its chunk could not be consumed."""
        return on_failure(self.go_back, claim)

    @contextmanager
    def fenced(self, batch: Batch) -> Iterator[None]:
        """Forget the queue of a chunk when another member owns it."""
        try:
            yield
        except LeaseLost:
            self._membership.lost(batch.qid)
            raise


def place(batch: Batch) -> str:
    """Return the name of a chunk's queue."""
    return f"queue {batch.queue} of {batch.topic!r}"
