"""
Reading the messages of a claim: each chunk once, however few of its messages are claimed at a time.

A damaged chunk is unreadable for every member, so its messages are returned with the readable ones. If it raised an
error, its messages would be redelivered for ever, and those after them in their queue might never come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import Copy
from txsaga.core.identity import HalfId
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch, lone
from txsaga.core.message import Delivered
from txsaga.core.records import LogEntry
from txsaga.core.topic import Topic
from txsaga.errors import ChunkDamaged

KEPT = 16 * 1024 * 1024
"""Bytes of partly read chunks that a member keeps."""


class Damage(NamedTuple):
    """An unreadable message: what is left of it, and why it can't be read."""

    offset: int
    topic: str
    copy: Copy
    cause: str


class FetchedMessages(NamedTuple):
    """The messages at some offsets; those that retention dropped are in neither list."""

    messages: list[Delivered]
    damaged: list[Damage]


class Fetching:
    """Reads the messages of one member's queues."""

    def __init__(self, kernel: Kernel, queues: Mapping[int, tuple[Topic, int]]) -> None:
        self._log, self._store, self._queues = kernel.store.log, kernel.store.registry.identity, queues
        self._begun: dict[int, Batch] = {}  # by queue, the least recently read one first

    def of(self, claim: Claim) -> FetchedMessages:
        """Read the open messages of a claim."""
        if claim.copy is not None:
            return self._of_copy(claim, claim.copy)
        found = self.read(claim.qid, claim.base, claim.base + claim.size)
        if claim.open.bit_count() == claim.size:
            return found
        wanted = {*claim.offsets()}
        return FetchedMessages(*([each for each in part if each.offset in wanted] for part in found))  # type: ignore[arg-type]

    def read(self, qid: int, start: int, end: int) -> FetchedMessages:
        """Read the messages of a queue between two offsets."""
        found, begun = FetchedMessages([], []), self._begun.pop(qid, None)
        topic, index = self._queues[qid]
        if begun is not None and begun.entry.base <= start < begun.entry.behind:
            start = self._add(found, qid, begun.part(start, end))
        while start < end:
            entries = self._log.fetch(qid, start, end - start, end)
            for entry in entries:
                try:
                    if entry.count == 1:
                        found.messages.append(lone(entry, topic=topic.name, queue=index, qid=qid, store=self._store))
                        start = entry.base + 1
                    else:
                        start = self._add(found, qid, self._batch(qid, entry, start, end))
                except ChunkDamaged as damage:
                    stop = min(end, entry.behind)
                    found.damaged.extend(
                        self._damage(qid, entry, at, damage) for at in range(max(start, entry.base), stop)
                    )
                    start = stop
            if not entries:
                break
        return found

    def _of_copy(self, claim: Claim, copy: Copy) -> FetchedMessages:
        topic, index = self._queues[claim.qid]
        try:
            return FetchedMessages([copy.delivered(topic.name, index, claim.base)], [])
        except ChunkDamaged as damage:
            return FetchedMessages([], [Damage(claim.base, topic.name, copy, str(damage))])

    def _batch(self, qid: int, entry: LogEntry, start: int, end: int) -> Batch:
        topic, index = self._queues[qid]
        return Batch(entry, topic=topic.name, queue=index, qid=qid, store=self._store, start=start, end=end)

    def _add(self, found: FetchedMessages, qid: int, batch: Batch) -> int:
        """Add a chunk's messages, and keep it when more are to come; return the offset after them."""
        found.messages.extend(batch.messages())
        if batch.end < batch.entry.behind:
            self._begun[qid] = batch
            while sum(len(each.entry.body) for each in self._begun.values()) > KEPT:
                del self._begun[next(iter(self._begun))]
        return batch.end

    def _damage(self, qid: int, entry: LogEntry, offset: int, damage: ChunkDamaged) -> Damage:
        """Describe one message of a damaged chunk; only the first keeps the bytes, else they are stored many times."""
        index = offset - entry.base
        id = HalfId(self._store, entry.txid, entry.part, entry.attempt, qid, entry.chunk, index)
        cause = str(damage) if not index else f"{damage}; its bytes are in the dead letter of offset {entry.base}"
        return Damage(
            offset, self._queues[qid][0].name, Copy(id.encode(), entry.born, b"" if index else entry.body), cause
        )
