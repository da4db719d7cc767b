"""The log: ticks give out offsets, readers go by (queue, offset)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from txsaga.model.records import Bounds, LogEntry, Ticked


class Log(Protocol):
    """Offsets of committed messages."""

    def tick(self, limit: int) -> Ticked | None:
        """Give offsets to decisions that became visible since the last tick, in (commit, number) order.

        None when a rival was first: nothing was written. A tick without news writes nothing.
        """

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        """Return up to `limit` chunks from the one that holds `offset` on, none that begins at `end` or behind it."""

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        """Return tail and head of queues."""

    def offset_at(self, qid: int, moment: datetime) -> int:
        """Return the first offset that was given out at or after a moment."""

    def wait(self, seconds: float) -> bool:
        """Wait for news; True when a tick announced some. Only a hint: the log is the truth."""

    def extend_partitions(self, ahead: int) -> int:
        """Make sure that numbers up to `ahead` beyond the newest have a partition; return how many were added."""

    def drop_partitions(self) -> int:
        """Drop partitions in which everything is settled, acknowledged and read, past its topic's retention.

        What is parked or due far ahead holds none; it stays, and is found as before. Return how many partitions went,
        those that left something behind included.
        """
