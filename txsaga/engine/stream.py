"""
Stream consumers: a cursor per group and queue, with owner and epoch.

Members share the queues of a group by their leases: live members sorted by name, queue i belongs to member
i modulo their number. A member that is gone loses its queues when its lease runs out; a queue whose offsets
are bound to an undecided transaction is taken over only after that transaction is settled (R11).

A position moves when it is committed: by `commit`, by iterating on, or inside a transaction's decision
(`tx.consume`). If nothing is committed, the same messages come again: at least once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.membership import Membership
from txsaga.engine.queue_reader import QueueReader
from txsaga.engine.transaction import Transaction
from txsaga.errors import ConfigError, LeaseLost, OffsetOutOfRange
from txsaga.model import facts
from txsaga.model.decision import Decision
from txsaga.model.layout import Batch
from txsaga.model.message import Delivered
from txsaga.model.records import Claimed, Intent
from txsaga.model.topic import check_name
from txsaga.ports.log import Log

logger = logging.getLogger("txsaga")

Start = Literal["earliest", "latest"] | datetime | int


class Stream:
    """Reads the queues that its member owns."""

    def __init__(
        self,
        kernel: Kernel,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        start: Start = "earliest",
        tag: str | None = None,
        ttl: timedelta = timedelta(seconds=15),
        idle: Callable[[float], bool] | None = None,
    ) -> None:
        check_name(group, what="consumer group")
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ConfigError(f"start {start} has no time zone; use pendulum or an aware datetime")
        self.group, self.member, self._tag = group, member, tag
        self._kernel, self._log = kernel, kernel.store.log
        self._queues = kernel.topics.by_queue([_user_topic(name) for name in topics])
        self._idle = idle or self._log.wait
        starts = {qid: first_offset(self._log, qid, start) for qid in self._queues}
        with kernel.announce.around(facts.Positioning, facts.Positioned, about=group):
            kernel.store.queues.create_cursors(group, starts)
        self._bound: set[int] = set()
        self._membership = Membership(kernel, group, member, list(self._queues), ttl, self._bound)
        self._readers: dict[int, tuple[int, QueueReader]] = {}
        self._turn = 0

    @property
    def claims(self) -> dict[int, Claimed]:
        """The queues that this member owns now."""
        return self._membership.claims

    def batches(self, *, wait: float | None = None) -> Iterator[Batch]:
        """Yield chunks as columns; never commits. `wait` ends it after so many idle seconds."""
        last = time.monotonic()
        while True:
            batch = self.poll()
            if batch is not None:
                yield batch
                last = time.monotonic()
            elif wait is not None and time.monotonic() - last >= wait:
                return
            else:
                self._idle(0.5 if wait is None else min(0.5, max(wait, 0.01)))

    def messages(self, *, wait: float | None = None) -> Iterator[Delivered]:
        """Yield messages; each chunk is committed when the message behind it is asked for."""
        for batch in self.batches(wait=wait):
            if self._tag is None:
                yield from batch.messages()
            else:
                yield from (message for message in batch.messages() if message.tag == self._tag)
            self.commit(batch)

    def __iter__(self) -> Iterator[Delivered]:
        """Yield messages for ever."""
        return self.messages()

    def poll(self) -> Batch | None:
        """Return the next chunk of a queue that this member owns, if there is one."""
        self._membership.keep()
        owned = sorted(self.claims)
        for _ in owned:
            reader = self._reader(owned[self._turn % len(owned)])
            batch = reader.next()
            if not reader.buffered:
                self._turn += 1
            if batch is not None:
                return batch
        return None

    def commit(self, batch: Batch, *, upto: int | None = None) -> None:
        """Move the cursor behind a chunk, or to an offset in it; `LeaseLost` when another member owns the queue."""
        claim, offset = self._claim(batch), batch.end if upto is None else upto
        try:
            with self._kernel.announce.around(facts.Advancing, facts.Advanced, batch.entry.txid):
                self.claims[batch.qid] = self._kernel.store.queues.advance(claim, self.member, offset)
        except LeaseLost:
            self._membership.lost(batch.qid)
            raise

    def bind(self, transaction: Transaction, batch: Batch) -> None:
        """Make a transaction's decision move the cursor behind a chunk (`tx.consume`)."""
        claim = self._claim(batch)
        life = transaction.join_life()
        intent = Intent(
            group=self.group,
            qid=batch.qid,
            start=claim.offset,
            end=batch.end,
            epoch=claim.epoch,
            txid=life.txid,
        )
        try:
            with (
                self._kernel.announce.around(facts.Intending, facts.Intended, life.txid),
                self._kernel.store.ledgers.open() as ledger,
            ):
                Lives(self._kernel).hold(ledger, life)
                ledger.intend(intent, self.member)
        except LeaseLost:
            self._membership.lost(batch.qid)
            raise
        self.claims[batch.qid] = claim._replace(offset=batch.end)
        self._bound.add(life.txid)
        transaction.when_decided(lambda decision: self._decided(claim, life.txid, decision))

    def seek(self, qid: int, offset: int) -> None:
        """Read an owned queue from another offset on; nothing is committed."""
        bounds = self._log.bounds([qid])[qid]
        if not bounds.tail <= offset <= bounds.head:
            topic, index = self._queues[qid]
            raise OffsetOutOfRange(topic.name, index, offset, tail=bounds.tail, head=bounds.head)
        self._reader(qid).seek(offset)

    def close(self) -> None:
        """Give the queues back."""
        self._membership.leave()

    def _decided(self, claim: Claimed, txid: int, decision: Decision) -> None:
        self._bound.discard(txid)
        known = self.claims.get(claim.qid)
        if decision is Decision.ROLLBACK and known is not None and known.epoch == claim.epoch:
            # A transaction may have bound several chunks of a queue: back to the first of them.
            self.claims[claim.qid] = known._replace(offset=min(known.offset, claim.offset))
            self._reader(claim.qid).seek(self.claims[claim.qid].offset)

    def _reader(self, qid: int) -> QueueReader:
        claim = self.claims[qid]
        epoch, reader = self._readers.get(qid, (None, None))
        if reader is None or epoch != claim.epoch:
            topic, index = self._queues[qid]
            reader = QueueReader(self._log, qid, topic.name, index, self._kernel.store.registry.identity, claim.offset)
            self._readers[qid] = claim.epoch, reader
        return reader

    def _claim(self, batch: Batch) -> Claimed:
        claim = self.claims.get(batch.qid)
        if claim is None:
            raise LeaseLost(f"queue {batch.queue} of {batch.topic!r} is not {self.member}'s any more; drop the work")
        return claim


def first_offset(log: Log, qid: int, start: Start) -> int:
    """Return where a reader of a queue begins; a number outside of what the queue holds is moved to its edge."""
    if isinstance(start, datetime):
        return log.offset_at(qid, start)
    bounds = log.bounds([qid])[qid]
    if isinstance(start, int):
        return min(max(start, bounds.tail), bounds.head)
    return bounds.tail if start == "earliest" else bounds.head


def _user_topic(name: str) -> str:
    check_name(name)
    return name
