"""
What this process works on: its open blocks and its half messages whose local work runs.

It writes nothing; the heartbeat does, which runs from the first work on. Whoever is
forgotten here is asked about as if it were dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

from txsaga.model.records import Doubt

TYPICAL = 2.0
"""Seconds: what takes longer is held; most transactions are over by then."""


class Running:
    """The transactions that this process works on."""

    def __init__(self) -> None:
        self.on_work: Callable[[], None] | None = None  # told of each piece of work that begins
        self.start_anew()

    def start_anew(self) -> None:
        """Forget all of them, as a forked child must: its parent works on them."""
        self._lock = Lock()
        self._since: WeakKeyDictionary[object, tuple[float, Doubt]] = WeakKeyDictionary()

    def begin(self, worker: object, doubt: Doubt) -> None:
        """Note what somebody works on; whoever is gone works on nothing."""
        with self._lock:
            self._since[worker] = self._since.get(worker, (time.monotonic(), doubt))[0], doubt
        if self.on_work is not None:
            self.on_work()

    def end(self, worker: object) -> None:
        """Note that somebody is done."""
        with self._lock:
            self._since.pop(worker, None)

    def long(self) -> list[Doubt]:
        """Return what has been worked on for longer than most."""
        before = time.monotonic() - TYPICAL
        with self._lock:
            return sorted((doubt for since, doubt in self._since.values() if since <= before), key=lambda d: d.txid)
