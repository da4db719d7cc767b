"""
Stream consumers: a cursor per group and queue, with owner and epoch.

Members share the queues of a group by their leases: with the live members of a topic sorted by name, queue i belongs to
member i modulo their number. A dead member loses its queues when its lease expires; a queue whose offsets are bound to
an undecided transaction is taken over only after that transaction is settled (R11).

A position moves when it is committed: by `commit`, by iterating on, or by a transaction's decision (`tx.consume`).
Uncommitted messages are delivered again: at least once. A transaction consumes chunks in order, each from the cursor's
position: otherwise messages in between would never be read, or read ones would be consumed twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from txsaga.consume.claim import Style
from txsaga.consume.delivery import Consuming, PendingChunk, Stepwise
from txsaga.consume.membership import Membership, joined
from txsaga.consume.queue_reader import QueueReader, Start
from txsaga.core import facts
from txsaga.core.arguments import check_kind, check_seconds
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.forking import this_process
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.core.records import ClaimedQueue, Intent, TxRecord
from txsaga.core.retry import patiently
from txsaga.core.topic import Topic
from txsaga.core.validation import validate_wanted_tag
from txsaga.errors import ChunkDamaged, ConfigError, LeaseLost, OffsetOutOfRange, OutOfOrder, StoreError
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class HeldQueues:
    """Reads the queues of a member's share, each at the group's position.

    Ownership may be lost without notice: the store reports it at the next commit or consume, and the queue is then
    forgotten here and taken again.
    """

    def __init__(self, kernel: Kernel, membership: Membership, queues: Mapping[int, tuple[Topic, int]]) -> None:
        self._membership, self._queues = membership, queues
        self._log, self._store = kernel.store.log, kernel.store.registry.identity
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
        owned = [] if self._membership.paused else sorted(self.claims)
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
            raise LeaseLost(f"queue {qid} is not {self._membership.member}'s; seek in one of {sorted(self.claims)}")
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
        if (claim := self.claims.get(batch.qid)) is None:
            raise LeaseLost(f"{place(batch)} is not {self._membership.member}'s any more; drop the work")
        return claim

    def due(self, batch: Batch) -> ClaimedQueue:
        """Return the claim that a chunk continues; refuse any other chunk, and deliver the due one next."""
        claim = self.claim(batch)
        if batch.offset != claim.offset:
            self.reader(batch.qid).seek(claim.offset)
            raise OutOfOrder(
                f"{place(batch)} is at {claim.offset}, not at {batch.offset} where this chunk begins; drop this work "
                "and poll again to get the right chunk"
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
        for txid, decision in self._membership.bound.decided().items():
            self.decided(txid, decision)

    def decided(self, txid: int, decision: Decision) -> None:
        """Continue after a transaction's decision; a second call changes nothing."""
        for claim in self._membership.bound.forget(txid):
            if decision is Decision.ROLLBACK:
                self.go_back(claim)

    def go_back(self, claim: ClaimedQueue) -> None:
        """Read again from a claim on, if the member still owns the queue and has passed it."""
        known = self.claims.get(claim.qid)
        if known is not None and known.epoch == claim.epoch:
            # A transaction may have bound several chunks of a queue: go back to the first of them.
            back = self.claims[claim.qid] = known._replace(offset=min(known.offset, claim.offset))
            self.reader(claim.qid).seek(back.offset)

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


SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=1)
"""Of a lease."""
A_CHUNK = "give a batch that poll() or batches() gave"


class Stream:
    """Reads the queues that its member owns."""

    def __init__(
        self,
        kernel: Kernel,
        group: str,
        topics: Iterable[str],
        *,
        member: str,
        start: Start = "earliest",
        tag: str | None = None,
        ttl: timedelta = timedelta(seconds=15),
        on_close: Callable[[Stream], None] = lambda _: None,
    ) -> None:
        check_kind(ttl, timedelta, "ttl", "give a timedelta, like timedelta(seconds=15)")
        validate_wanted_tag(tag)
        if not SHORTEST <= ttl <= LONGEST:
            raise ConfigError(f"ttl is {ttl}; give a ttl from one second to one day")
        self.group, self.member, self._tag = group, member, tag
        self._kernel, self._log, self._on_close = kernel, kernel.store.log, on_close
        _, queues = joined(kernel, group, Style.STREAM, topics, start)
        named = {qid: topic.name for qid, (topic, _) in queues.items()}
        self._membership = Membership(kernel, group, member, named, ttl)
        self._held = HeldQueues(kernel, self._membership, queues)
        self._closed = False
        self._process = this_process()
        self._lock = threading.RLock()  # a closing broker takes its streams from their threads

    def __repr__(self) -> str:
        return f"<Stream {self.member} of group {self.group}>"

    @property
    def claims(self) -> dict[int, ClaimedQueue]:
        """The queues that this member owns now."""
        return self._held.claims

    def batches(self, *, wait: float | None = None) -> Iterator[Batch]:
        """Yield chunks as columns; never commit. `wait` ends it after this many idle seconds."""
        self._require_all_tags("batches")
        return self._chunks(wait)

    def messages(self, *, wait: float | None = None) -> Iterator[Delivered]:
        """Yield messages; each chunk is committed when the message after it is requested.

        A chunk in which the loop was left, even at its last message, is delivered again.
        """
        return self._messages(self._chunks(wait))

    def _messages(self, batches: Iterator[Batch]) -> Iterator[Delivered]:
        for batch in batches:
            yield from self.read(batch)
            if self._closed:
                return  # closed by another thread: another member owns the chunk now
            self.commit(batch)

    def read(self, batch: Batch) -> Generator[Delivered]:
        """Yield the messages of a chunk; it is delivered again if the loop is left within it. Nothing is committed."""
        check_kind(batch, Batch, "the chunk", A_CHUNK)
        with on_failure(self._read_again, batch, self.claims.get(batch.qid)):
            if self._tag is None:
                yield from batch.messages()
            else:
                yield from (message for message in batch.messages() if message.tag == self._tag)

    def _read_again(self, batch: Batch, claim: ClaimedQueue | None) -> None:
        """Redeliver a chunk whose loop was left within it: going on after it would commit unread messages."""
        if claim is not None and self._here and not self._closed:
            with self._lock:
                self._held.read_again(batch, claim)

    def __iter__(self) -> Iterator[Delivered]:
        return self.messages()

    def poll(self) -> Batch | None:
        """Return the next chunk of a queue that this member owns, if there is one."""
        self._require_all_tags("poll")
        self._require_here()
        if self._closed:
            raise LeaseLost(f"this stream of group {self.group!r} is closed; open another with broker.stream")
        return self._next()

    def commit(self, batch: Batch, *, upto: int | None = None) -> None:
        """Move the cursor after a chunk, or to an offset in it; `LeaseLost` when another member owns the queue."""
        check_kind(batch, Batch, "the chunk", A_CHUNK)
        if upto is not None:
            check_kind(upto, int, "upto", "give an offset in the chunk, or leave it out")
        offset = batch.end if upto is None else upto
        if not batch.offset <= offset <= batch.end:
            raise ConfigError(f"upto={offset} is outside this chunk; give {batch.offset} to {batch.end}")
        self._require_here()
        held, advance = self._held, self._kernel.store.queues.advance
        with self._lock:
            claim, read = held.claim(batch), held.reader(batch.qid).mark
            if offset < read:
                raise OutOfOrder(f"{place(batch)} is read up to {read}; seek back before a commit at {offset}")
            with held.fenced(batch), self._kernel.announce.around(facts.Advancing, batch.entry.txid):
                moved = patiently(lambda: advance(claim, self.member, offset))
            held.pass_over(moved)

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Let a transaction's decision move the cursor after a chunk (`tx.consume`)."""
        check_kind(batch, Batch, "the chunk", A_CHUNK)
        self._require_here()
        with self._lock:
            claim = self._held.due(batch)
            with on_failure(self._held.go_back, claim), self._held.fenced(batch):
                if isinstance(transaction, Stepwise):
                    transaction.take(self._portion(transaction, claim, batch))
                    life = None
                else:
                    life = joined = transaction.join_life()
                    patiently(lambda: self._intend(joined, claim, batch.end))
            self._held.pass_over(claim._replace(offset=batch.end))
        if life is not None:
            self._follow(transaction, life.txid, claim)

    def seek(self, qid: int, offset: int) -> None:
        """Read an owned queue from another offset on; nothing is committed."""
        check_kind(qid, int, "qid", "give the number of a queue")
        check_kind(offset, int, "offset", "give a number")
        self._require_here()
        with self._lock:
            self._held.seek(qid, offset)

    def close(self) -> None:
        """Give the queues back, bound ones when they are decided; running iterations end."""
        if not self._here:
            return  # a forked child can't give back its parent's queues
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._on_close(self)
            self._held.follow()
            self._membership.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _chunks(self, wait: float | None) -> Iterator[Batch]:
        if wait is not None:
            check_seconds(wait, "wait")
        return self._until_idle(wait)

    def _until_idle(self, wait: float | None) -> Iterator[Batch]:
        last = time.monotonic()
        while not self._closed:
            self._require_here()
            if (batch := self._next()) is not None:
                yield batch
                last = time.monotonic()
            elif wait is not None and time.monotonic() - last >= wait:
                return
            else:
                self._log.wait(0.5 if wait is None else min(0.5, max(wait, 0.01)))

    def _next(self) -> Batch | None:
        with self._lock:
            return None if self._closed else self._held.next()

    def _intend(self, life: TxRecord, claim: ClaimedQueue, end: int) -> None:
        with self._kernel.announce.around(facts.Intending, life.txid), self._kernel.store.ledgers.open() as ledger:
            TxRecords(self._kernel).hold(ledger, life)
            ledger.intend(self._intent(life, claim, end), self.member)

    def _intent(self, life: TxRecord, claim: ClaimedQueue, end: int) -> Intent:
        return Intent(group=self.group, qid=claim.qid, start=claim.offset, end=end, epoch=claim.epoch, txid=life.txid)

    def _portion(self, transaction: Consuming, claim: ClaimedQueue, batch: Batch) -> PendingChunk:
        def bind(ledger: Ledger, life: TxRecord) -> None:
            with self._lock, self._held.fenced(batch):
                ledger.intend(self._intent(life, claim, batch.end), self.member)

        def go_back() -> None:
            with self._lock:
                self._held.go_back(claim)

        def settle() -> None:
            self._follow(transaction, transaction.join_life().txid, claim)

        return PendingChunk(self._kernel.store.registry.identity, bind, settle, go_back)

    def _follow(self, transaction: Consuming, txid: int, claim: ClaimedQueue) -> None:
        """Follow a transaction that consumes a chunk: after a ROLLBACK it is read again."""
        with self._lock:
            self._membership.bound.add(txid, claim)
        transaction.when_decided(lambda decision: self._decided(txid, decision))

    def _decided(self, txid: int, decision: Decision) -> None:
        if not self._here:
            return
        with self._lock:
            self._held.decided(txid, decision)
            if self._closed:
                with suppress(StoreError):  # the decision is final; its leases expire by themselves
                    self._membership.leave()

    @property
    def _here(self) -> bool:
        return this_process() == self._process

    def _require_here(self) -> None:
        """Refuse in a forked child: two readers with one name and one lease would commit for each other."""
        if not self._here:
            raise LeaseLost(
                f"this stream of group {self.group!r} is the parent's, from before the fork; "
                "open another here with broker.stream"
            )

    def _require_all_tags(self, method: str) -> None:
        if self._tag is not None:
            raise ConfigError(
                f"{method}() returns whole chunks regardless of tags; use messages(), or open the stream without "
                f"tag={self._tag!r} and check batch.tags"
            )
