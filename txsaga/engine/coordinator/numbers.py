"""
Numbers for transactions of which nothing is written before their end: taken from the store many at a time.

A number is used once, and soon: what is older than a moment is thrown away, so that nobody begins under a number that
the store has let go of, or for long after it rejects transactions. If the process dies, its numbers stay unused.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from txsaga.engine.waiting import away
from txsaga.model.records import Life

MANY = 512
KEPT = 1.0
"""Seconds that a number may wait to be used."""


class Numbers:
    """The numbers that this process has at hand."""

    def __init__(self, ask: Callable[[int, int], Sequence[Life]]) -> None:
        self._ask = ask
        self._start_anew()

    def take(self, group: int) -> Life:
        """Take a number; the store is asked when none is fresh enough."""
        if self._process != os.getpid():
            self._start_anew()  # a forked child's parent uses its own
        at_hand = self._at_hand.get(group)
        try:
            if at_hand is not None and time.monotonic() < at_hand[0]:
                return at_hand[1].popleft()
        except IndexError:
            pass  # another thread took the last one
        return away(lambda: self._fetch(group))

    def _fetch(self, group: int) -> Life:
        with self._lock:
            used_up = self._at_hand.get(group)
            if used_up is not None and used_up[1] and time.monotonic() < used_up[0]:
                return used_up[1].popleft()  # somebody fetched meanwhile
            # Whoever needs one now and then takes one: the others would only be thrown away.
            busy = used_up is not None and not used_up[1] and time.monotonic() < used_up[0] + KEPT
            now = time.monotonic()
            first, *others = self._ask(group, min(MANY, 4 * self._asked.get(group, 1)) if busy else 1)
            self._asked[group] = len(others) + 1
            self._at_hand[group] = now + KEPT, deque(others)
            return first

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._at_hand: dict[int, tuple[float, deque[Life]]] = {}
        self._asked: dict[int, int] = {}
        self._process = os.getpid()
