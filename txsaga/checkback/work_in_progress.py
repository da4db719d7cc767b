"""
The work of this process: its open blocks, and its half messages whose local work runs.

It writes nothing; the heartbeat does, from the first work on. Work forgotten here is checked as if its process were
dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

from txsaga.core.records import Doubt, Group

TYPICAL = 2.0
"""Seconds: work that takes longer is held; most transactions are over by then."""
SOONEST = 0.25
"""Seconds: no work is held sooner, however small its group's minimum age."""
SHARE = 3
"""Shares of a group's minimum age: after one share its work is held, by the beat that comes within the next."""

_of_parents: list[object] = []
"""Kept in a forked child: an unreferenced one returns to its pool, which would roll back the parent's sessions."""


class WorkInProgress:
    """The transactions that this process works on."""

    def __init__(self) -> None:
        self.on_work: Callable[[], None] | None = None  # called for each piece of work that begins
        self._hasty: dict[int, float] = {}
        self.start_anew()

    def expect(self, group: Group) -> None:
        """Record how soon the work of a group may be checked."""
        least = group.checks.get("min_age")
        soon = max(SOONEST, least / SHARE) if isinstance(least, int | float) else TYPICAL
        with self._lock:
            hasty = {id: each for id, each in self._hasty.items() if id != group.id}
            self._hasty = hasty | {group.id: soon} if soon < TYPICAL else hasty

    @property
    def beat(self) -> float:
        """Seconds between two heartbeats, so that all work is held in time."""
        return min([TYPICAL, *self._hasty.values()])

    def start_anew(self) -> None:
        """Forget all of them, as a forked child must: its parent works on them."""
        _of_parents.extend(getattr(self, "_since", ()))
        self._lock = Lock()
        self._driven: dict[tuple[int, int], float] = {}
        self._present: set[str] = set()
        self._since: WeakKeyDictionary[object, tuple[float, Doubt]] = WeakKeyDictionary()

    def begin(self, worker: object, doubt: Doubt) -> None:
        """Record what a worker works on; garbage-collected workers drop out."""
        with self._lock:
            self._since[worker] = self._since.get(worker, (time.monotonic(), doubt))[0], doubt
        if self.on_work is not None:
            self.on_work()

    def end(self, worker: object) -> None:
        """Record that a worker is done."""
        with self._lock:
            self._since.pop(worker, None)

    def drive(self, txid: int, owner: int) -> None:
        """Record that this owner of a saga, or its driver, is at work here."""
        with self._lock:
            self._driven.setdefault((txid, owner), time.monotonic())
        if self.on_work is not None:
            self.on_work()

    def leave(self, txid: int, owner: int) -> None:
        """Record that it no longer is."""
        with self._lock:
            self._driven.pop((txid, owner), None)

    def enter(self, name: str) -> None:
        """Record that this process is in a step that leaves no evidence, under the name of its lease."""
        with self._lock:
            self._present.add(name)
        if self.on_work is not None:
            self.on_work()

    def exit(self, name: str) -> None:
        """Record that it left the step."""
        with self._lock:
            self._present.discard(name)

    def present(self) -> list[str]:
        """Return the names under which it is in such steps."""
        with self._lock:
            return sorted(self._present)

    def driven(self) -> list[tuple[int, int]]:
        """Return the sagas in progress for longer than most, with their owners."""
        before = time.monotonic() - TYPICAL
        with self._lock:
            return sorted(saga for saga, since in self._driven.items() if since <= before)

    def long(self) -> list[Doubt]:
        """Return the work in progress for longer than most, or longer than its group allows."""
        now, hasty = time.monotonic(), self._hasty
        with self._lock:
            held = (d for since, d in self._since.values() if since <= now - hasty.get(d.group, TYPICAL))
            return sorted(held, key=lambda doubt: doubt.txid)
