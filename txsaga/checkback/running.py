"""
What this process works on: its open blocks and its half messages whose local work runs.

It writes nothing; the heartbeat does, which runs from the first work on. Whoever is
forgotten here is asked about as if it were dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet

from txsaga.core.records import Doubt, Group

TYPICAL = 2.0
"""Seconds: what takes longer is held; most transactions are over by then."""
SOONEST = 0.25
"""Seconds: nothing is held sooner, however soon its group is asked about."""
SHARE = 3
"""A group's least age so often: after one share its work is held, by the beat that comes within the next."""

_of_parents: list[object] = []
"""Kept in a forked child: what nobody holds is given back to its pool, which rolls back the parent's sessions."""


class Running:
    """The transactions that this process works on."""

    def __init__(self) -> None:
        self.on_work: Callable[[], None] | None = None  # told of each piece of work that begins
        self._hasty: dict[int, float] = {}
        self.start_anew()

    def expect(self, group: Group) -> None:
        """Note how soon the work of a group may be asked about."""
        least = group.checks.get("min_age")
        soon = max(SOONEST, least / SHARE) if isinstance(least, int | float) else TYPICAL
        with self._lock:
            hasty = {id: each for id, each in self._hasty.items() if id != group.id}
            self._hasty = hasty | {group.id: soon} if soon < TYPICAL else hasty

    @property
    def beat(self) -> float:
        """Seconds from one look at what is worked on to the next, so that each is held in time."""
        return min([TYPICAL, *self._hasty.values()])

    def start_anew(self) -> None:
        """Forget all of them, as a forked child must: its parent works on them."""
        _of_parents.extend([*getattr(self, "_since", ()), *getattr(self, "_unwritten", ())])
        self._lock = Lock()
        self._driven: dict[tuple[int, int], float] = {}
        self._present: set[str] = set()
        self._since: WeakKeyDictionary[object, tuple[float, Doubt]] = WeakKeyDictionary()
        self._unwritten: WeakSet[object] = WeakSet()

    def begin_unwritten(self, worker: object) -> None:
        """Note that this worker is at work on what no store knows of: nobody asks about that, but it has sessions."""
        with self._lock:
            self._unwritten.add(worker)

    def begin(self, worker: object, doubt: Doubt) -> None:
        """Note what somebody works on; whoever is gone works on nothing."""
        with self._lock:
            self._unwritten.discard(worker)
            self._since[worker] = self._since.get(worker, (time.monotonic(), doubt))[0], doubt
        if self.on_work is not None:
            self.on_work()

    def end(self, worker: object) -> None:
        """Note that somebody is done."""
        with self._lock:
            try:
                self._unwritten.remove(worker)
            except KeyError:
                self._since.pop(worker, None)

    def drive(self, txid: int, owner: int) -> None:
        """Note that this owner of a saga, or its driver, is at work here."""
        with self._lock:
            self._driven.setdefault((txid, owner), time.monotonic())
        if self.on_work is not None:
            self.on_work()

    def leave(self, txid: int, owner: int) -> None:
        """Note that it is at work no more."""
        with self._lock:
            self._driven.pop((txid, owner), None)

    def enter(self, name: str) -> None:
        """Note that this process is in a step that leaves no evidence, under the name of its lease."""
        with self._lock:
            self._present.add(name)
        if self.on_work is not None:
            self.on_work()

    def exit(self, name: str) -> None:
        """Note that it has left."""
        with self._lock:
            self._present.discard(name)

    def present(self) -> list[str]:
        """Return the names under which it is in steps."""
        with self._lock:
            return sorted(self._present)

    def driven(self) -> list[tuple[int, int]]:
        """Return the sagas that have been worked on for longer than most, with their owners."""
        before = time.monotonic() - TYPICAL
        with self._lock:
            return sorted(saga for saga, since in self._driven.items() if since <= before)

    def long(self) -> list[Doubt]:
        """Return what has been worked on for longer than most, or for as long as its group bears."""
        now, hasty = time.monotonic(), self._hasty
        with self._lock:
            held = (d for since, d in self._since.values() if since <= now - hasty.get(d.group, TYPICAL))
            return sorted(held, key=lambda doubt: doubt.txid)
