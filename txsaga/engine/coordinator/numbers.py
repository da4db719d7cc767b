"""
Numbers for transactions of which nothing is written before their end: taken from the store many at a time.

Who uses many has the next ones fetched while some are left: within a loop all of its tasks would wait for who fetches.
A number is used once, and soon: what is older than a moment is thrown away, so that nobody begins under a number that
the store has let go of, or for long after it rejects transactions. If the process dies, its numbers stay unused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from txsaga.engine.processes import this_process
from txsaga.engine.waiting import away
from txsaga.errors import TxSagaError
from txsaga.model.records import Life

MANY = 512
KEPT = 1.0
"""Seconds that a number may wait to be used."""
AHEAD = 64
"""Who used so many at once has the next ones fetched when a quarter of them is left."""

logger = logging.getLogger("txsaga")


class _Hand:
    """The numbers of one group that are at hand, and when they are too old."""

    def __init__(self) -> None:
        self._lives = deque[tuple[float, Life]]()
        self._asked, self._until, self._thrown_away = 0, 0.0, False
        self._low = 0  # with fewer at hand the next ones are fetched

    def take(self) -> Life | None:
        """Take the oldest one that is fresh enough."""
        now = time.monotonic()
        with suppress(IndexError):  # another thread took the last one
            while True:
                until, life = self._lives.popleft()
                if now < until:
                    return life
                self._thrown_away = True
        return None

    def runs_low(self) -> bool:
        """Tell so, to one caller."""
        if len(self._lives) >= self._low:
            return False
        self._low = 0
        return True

    def fill(self, ask: Callable[[int], Sequence[Life]]) -> None:
        """Ask for more than the last time where those were used up, else for one: the others would be thrown away."""
        now = time.monotonic()
        used_up = not self._thrown_away and now < self._until + KEPT
        lives = ask(min(MANY, 4 * self._asked) if used_up else 1)
        self._asked, self._until, self._thrown_away = len(lives), now + KEPT, False
        self._lives.extend([(self._until, life) for life in lives])
        self._low = len(lives) // 4 if len(lives) >= AHEAD else 0


class Numbers:
    """The numbers that this process has at hand."""

    def __init__(self, ask: Callable[[int, int], Sequence[Life]]) -> None:
        self._ask = ask
        self._start_anew()

    def take(self, group: int) -> Life:
        """Take a number; the store is asked when none is fresh enough."""
        if self._process != this_process():
            self._start_anew()  # a forked child's parent uses its own
        hand = self._hands.get(group) or self._hands.setdefault(group, _Hand())
        life = hand.take()
        if life is None:
            return away(lambda: self._fetched(group, hand))
        if hand.runs_low():
            ahead = partial(self._fetch_ahead, group, hand)
            with suppress(RuntimeError):  # the program ends
                threading.Thread(target=ahead, name="txsaga-numbers", daemon=True).start()
        return life

    def _fetched(self, group: int, hand: _Hand) -> Life:
        with self._lock:
            while (life := hand.take()) is None:  # else somebody fetched meanwhile
                hand.fill(lambda many: self._ask(group, many))
        return life

    def _fetch_ahead(self, group: int, hand: _Hand) -> None:
        try:
            with self._lock:
                hand.fill(lambda many: self._ask(group, many))
        except TxSagaError:  # whoever needs one hears why
            logger.debug("no numbers could be fetched ahead", exc_info=True)

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._hands: dict[int, _Hand] = {}
        self._process = this_process()
