"""
The log in memory: a tick gives out offsets in the order of decisions.

If no tick runs, decisions stand and nobody sees the messages; the next tick catches up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from threading import Condition, local
from typing import NamedTuple

from tests.oracle.home import Home
from tests.oracle.names import Names
from tests.oracle.rows import StoredHalf
from txsaga.consume.log_store import Log
from txsaga.core.decision import Decision
from txsaga.core.records import Bounds, LogEntry, TickResult
from txsaga.inspect.overview import Dispatch


class Given(NamedTuple):
    """A chunk that has its offsets."""

    base: int
    half: StoredHalf
    at: datetime


class MemoryLog(Log):
    """Offsets of committed messages."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home = home
        self._names = names
        self._given: dict[int, list[Given]] = {}
        self._heads: dict[int, int] = {}
        self._tails: dict[int, int] = {}
        self._taken = 0  # decisions that had their tick
        self._seen: dict[int, datetime] = {}  # when that was
        self._last_tick = 0
        self._ticked = home.now()
        self._announced = 0
        self._news = Condition(home.lock)
        self._heard = local()

    def tick(self, limit: int) -> TickResult | None:
        """Give offsets to decisions in their order."""
        with self._news:
            kept, now = self._home.kept, self._home.now()
            batch = kept.order[self._taken : self._taken + limit]
            if not batch:
                return TickResult(self._last_tick, 0, False)
            halves = [half for txid in batch for half in kept.deliverable(txid)]
            for half in halves:
                self._give(half, now)
            self._seen |= dict.fromkeys(batch, now)
            self._taken += len(batch)
            self._last_tick += 1
            self._ticked = now
            if halves:
                self._announced = self._last_tick
                self._news.notify_all()
            return TickResult(self._last_tick, len(halves), self._taken < len(kept.order))

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        """Return chunks from the one that holds `offset` on."""
        with self._home.lock:
            given, head = self._given.get(qid, []), self._heads.get(qid, 0)
            if offset >= head:
                return []
            first = max(bisect_right(given, offset, key=lambda each: each.base) - 1, 0)
            return [_entry(each) for each in given[first : first + limit] if each.base < end]

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        """Return tail and head."""
        with self._home.lock:
            return {qid: Bounds(self._tails.get(qid, 0), self._heads.get(qid, 0)) for qid in self._names.known(qids)}

    def purge(self, qids: Sequence[int]) -> int:
        """Move the tails of queues to their heads; return how many messages are gone."""
        bounds = self.bounds(qids)
        self._tails |= {qid: bound.head for qid, bound in bounds.items()}
        return sum(bound.head - bound.tail for bound in bounds.values())

    def offset_at(self, qid: int, moment: datetime) -> int:
        """Return the first offset given out at or after a moment."""
        with self._home.lock:
            later = (each.base for each in self._given.get(qid, []) if each.at >= moment)
            return next(later, self._heads.get(qid, 0))

    def given_at(self, qid: int, offset: int) -> datetime:
        """Return when an offset that is there was given out."""
        given = self._given[qid]
        return given[bisect_right(given, offset, key=lambda each: each.base) - 1].at

    def wait(self, seconds: float) -> bool:
        """Wait for a tick that this thread has not heard of."""
        with self._news:
            self._home.outside()  # waiting lets go of the lock that the block needs
            heard = getattr(self._heard, "tick", 0)
            self._news.wait_for(lambda: self._announced > heard, timeout=seconds)
            self._heard.tick = self._announced
            return self._announced > heard

    def dispatch(self) -> Dispatch:
        """Tell of the last tick and of what waits for the next."""
        with self._home.lock:
            kept, age = self._home.kept, self._home.now() - self._ticked
            waiting = sum(kept.ops[txid].decision is Decision.COMMIT for txid in kept.order[self._taken :])
            return Dispatch(tick=self._last_tick, age=age, waiting=waiting)

    def seen(self, txid: int) -> datetime | None:
        """Return when a tick first saw a decision."""
        with self._home.lock:
            return self._seen.get(txid)

    def given(self, txid: int) -> Sequence[Given]:
        """Return the chunks of a transaction that have their offsets."""
        with self._home.lock:
            return [each for queue in self._given.values() for each in queue if each.half.txid == txid]

    def extend_partitions(self, ahead: int) -> int:
        """Add nothing: memory has no partitions."""
        return 0

    def drop_partitions(self) -> int:
        """Drop nothing: memory has no partitions."""
        return 0

    def _give(self, half: StoredHalf, now: datetime) -> None:
        qid = half.row.qid
        base = self._heads.get(qid, 0)
        self._given.setdefault(qid, []).append(Given(base, half, now))
        self._heads[qid] = base + half.row.count


def _entry(given: Given) -> LogEntry:
    half = given.half
    return LogEntry(
        given.base,
        half.row.count,
        half.txid,
        half.part,
        half.attempt,
        half.row.chunk,
        half.born,
        half.row.body,
    )
