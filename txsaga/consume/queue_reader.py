"""
Reading one queue of the log from an offset on, some chunks ahead.

Offsets below the tail are gone. A reader positioned there gets an error: continuing at the tail instead would skip
messages silently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from txsaga.core.identity import StoreId
from txsaga.core.layout import Batch
from txsaga.core.records import LogEntry
from txsaga.core.retry import patiently
from txsaga.errors import ChunkDamaged, ConfigError, OffsetOutOfRange, StoreUnavailable

if TYPE_CHECKING:
    from txsaga.consume.log_store import Log

AHEAD = 16
"""Chunks per fetch, at most: if that takes the store too long, fewer are requested."""
PAST = "seek({qid}, {behind}), poll(), commit(batch, upto=batch.offset)"
"""How a stream skips a damaged chunk."""

Start = Literal["earliest", "latest"] | datetime | int


def first_offset(log: Log, qid: int, start: Start) -> int:
    """Return the offset where a reader of a queue begins; a number outside the queue is moved to its nearest end.

    An unknown value is refused: if a typing error were taken for "latest", existing messages would never be read.
    """
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start {start} has no time zone; use pendulum or an aware datetime")
        return log.offset_at(qid, start)
    if isinstance(start, int) and start < 0:
        raise ConfigError(f"start {start} is not an offset: offsets begin at 0")
    if isinstance(start, bool) or (not isinstance(start, int) and start not in ("earliest", "latest")):
        raise ConfigError(f"start {start!r} is none of 'earliest', 'latest', an aware datetime, an offset")
    bounds = log.bounds([qid])[qid]
    if isinstance(start, int):
        return min(max(start, bounds.tail), bounds.head)
    return bounds.tail if start == "earliest" else bounds.head


class QueueReader:
    """A position in one queue."""

    def __init__(
        self, log: Log, qid: int, topic: str, index: int, store: StoreId, offset: int, *, past: str = PAST
    ) -> None:
        self._past = past
        self._log, self._qid, self._topic, self._index = log, qid, topic, index
        self._store = store
        self._offset = self._mark = offset
        self._ahead: deque[LogEntry] = deque()
        self._at_once = AHEAD
        self._inside = False  # whether the position was seen to be inside the queue

    @property
    def buffered(self) -> bool:
        """Whether chunks are available without a fetch."""
        return bool(self._ahead)

    @property
    def mark(self) -> int:
        """The offset before which everything counts as read."""
        return self._mark

    def next(self) -> Batch | None:
        """Return the next chunk, if there is one; `OffsetOutOfRange` when it is gone."""
        if not self._ahead:
            self._ahead.extend(patiently(self._fetch))
        if not self._ahead:
            return None
        batch = self._unpacked(self._ahead[0])
        self._ahead.popleft()  # an unreadable chunk stays the next one: removed, it would be skipped
        self._offset = batch.end
        return batch

    def seek(self, offset: int) -> None:
        """Read from another offset on."""
        self._ahead.clear()
        self._offset = self._mark = offset
        self._inside = False

    def pass_over(self, offset: int) -> None:
        """Count everything before an offset as read, and return none of it any more."""
        if self._offset < offset:
            self.seek(offset)
        self._mark = offset

    def _unpacked(self, entry: LogEntry) -> Batch:
        try:
            return Batch(
                entry, topic=self._topic, queue=self._index, qid=self._qid, store=self._store, start=self._offset
            )
        except ChunkDamaged as damage:
            where = f"queue {self._index} of {self._topic!r}, offsets {entry.base} to {entry.behind - 1}"
            past = self._past.format(qid=self._qid, topic=self._topic, behind=entry.behind)
            raise ChunkDamaged(f"{where}: {damage}, or skip it: {past}") from damage

    def _fetch(self) -> Sequence[LogEntry]:
        found = self._fetched()
        if not self._inside or (found and found[0].base > self._offset):
            bounds = self._log.bounds([self._qid])[self._qid]
            if not bounds.tail <= self._offset <= bounds.head:
                raise OffsetOutOfRange(self._topic, self._index, self._offset, tail=bounds.tail, head=bounds.head)
            self._inside = True
        return found

    def _fetched(self) -> Sequence[LogEntry]:
        try:
            found = self._log.fetch(self._qid, self._offset, self._at_once)
        except StoreUnavailable:
            self._at_once = max(1, self._at_once // 2)
            raise
        self._at_once = min(AHEAD, self._at_once + 1)
        return found
