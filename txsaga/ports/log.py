"""The log: ticks give out offsets, readers go by (queue, offset)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from txsaga.model.records import Bounds, Doubt, LogEntry, Ticked

ABANDONED = timedelta(hours=1)
"""An open transaction that its owner has not touched for so long is given up: it holds partitions and queues."""


class Log(Protocol):
    """Offsets of committed messages, and the list of halves in doubt."""

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

    def sweep(self, age: timedelta) -> int:
        """Put halves and closed transactions older than `age` without a decision on the list of doubts.

        Each half is looked at once, and once more later for those whose number is older than their commit. An open
        transaction is listed when its owner has not touched it for `ABANDONED`.
        """

    def doubts(self, limit: int) -> Sequence[Doubt]:
        """Return transactions without a decision that are due, oldest first."""

    def doubt(self, txid: int) -> Doubt | None:
        """Return what deciding one transaction needs, listed or not, decided or not; None for an unknown one."""

    def postpone(self, txid: int, by: timedelta, *, counted: bool) -> None:
        """Ask about a doubt again later; `counted` adds to its checks."""

    def park(self, txid: int, why: str) -> None:
        """Take a doubt off the checks, with the reason; it stays listed and invisible to readers."""

    def settled(self, txids: Sequence[int]) -> None:
        """Take transactions off the list of doubts."""

    def extend_partitions(self, ahead: int) -> int:
        """Make sure that numbers up to `ahead` beyond the newest have a partition; return how many were added."""

    def drop_partitions(self) -> int:
        """Drop partitions in which everything is settled, acknowledged and read, past its topic's retention."""
