"""
Numbers for transactions of which nothing is written before their end: taken from the store many at a time.

A group that uses many has the next ones fetched while some are left: within a loop all tasks would wait for the fetch.
A number is used once, and soon: older ones are thrown away, so that no transaction begins under a number that the store
has released, or long after the store began to reject them. If the process dies, its numbers stay unused.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from txsaga.core.failure import on_failure
from txsaga.core.fibers import run_blocking
from txsaga.core.forking import this_process
from txsaga.core.records import TxRecord

MANY = 512
KEPT = 1.0
"""Seconds that a number may wait to be used."""
AHEAD = 64
"""A group that used so many at once has the next ones fetched when a quarter of them is left."""

logger = logging.getLogger("txsaga")

Ask = Callable[[int], Sequence[TxRecord]]


class _Stock:
    """The available numbers of one group, and when they are too old."""

    def __init__(self) -> None:
        self._lives = deque[tuple[float, TxRecord]]()
        self._asked, self._until, self._thrown_away = 1, -math.inf, False
        self._low = 0  # with fewer left the next ones are fetched
        self._ahead = threading.Lock()  # held while they are fetched
        self._noting = threading.Lock()

    def take(self) -> TxRecord | None:
        """Take the oldest one that is fresh enough."""
        now = time.monotonic()
        with suppress(IndexError):  # another thread took the last one
            while True:
                until, life = self._lives.popleft()
                if now < until:
                    return life
                self._thrown_away = True
        return None

    def fetch(self, ask: Ask) -> TxRecord:
        """Ask for more than last time if those were used up, else for one: the others would be thrown away."""
        used_up = not self._thrown_away and time.monotonic() < self._until + KEPT
        until, (first, *others) = self._ask(ask, 4 * self._asked if used_up else 1)
        self._keep(until, others)
        return first

    def runs_low(self) -> bool:
        """Return True to one caller only, which then calls `fetch_ahead`."""
        return len(self._lives) < self._low and self._ahead.acquire(blocking=False)

    def fetch_ahead(self, ask: Ask) -> None:
        """Fetch more before the last one is used; a caller that needs one meanwhile does not wait."""
        try:
            self._keep(*self._ask(ask, self._asked if self._thrown_away else 4 * self._asked))
        except Exception:  # a caller that needs one gets the error
            self._low = 0  # until one was assigned again
            logger.debug("no numbers could be fetched ahead", exc_info=True)
        finally:
            self.let_be()

    def let_be(self) -> None:
        """Allow the next fetch ahead."""
        with suppress(RuntimeError):  # the thread did start, and has released it
            self._ahead.release()

    def _ask(self, ask: Ask, many: int) -> tuple[float, Sequence[TxRecord]]:
        until = time.monotonic() + KEPT
        lives = ask(min(MANY, many))
        with self._noting:
            if until >= self._until:  # otherwise a later request was answered first
                self._asked, self._until, self._thrown_away = len(lives), until, False
                self._low = len(lives) // 4 if len(lives) >= AHEAD else 0
        return until, lives

    def _keep(self, until: float, lives: Sequence[TxRecord]) -> None:
        if time.monotonic() < until:
            self._lives.extend([(until, life) for life in lives])


class TxidPool:
    """The numbers that this process has available."""

    def __init__(self, ask: Callable[[int, int], Sequence[TxRecord]]) -> None:
        self._ask = ask
        self._start_anew()

    def take(self, group: int) -> TxRecord:
        """Take a number; ask the store if none is fresh enough."""
        if self._process != this_process():
            self._start_anew()  # a forked child must not use its parent's numbers
        stock = self._stocks.get(group) or self._stocks.setdefault(group, _Stock())
        life = stock.take()
        if life is None:
            return run_blocking(lambda: self._fetched(group, stock))
        if stock.runs_low():
            self._fetch_ahead(group, stock)
        return life

    def _fetched(self, group: int, stock: _Stock) -> TxRecord:
        with self._lock:
            return stock.take() or stock.fetch(partial(self._ask, group))  # another thread may have fetched

    def _fetch_ahead(self, group: int, stock: _Stock) -> None:
        fetching = partial(stock.fetch_ahead, partial(self._ask, group))
        with suppress(RuntimeError), on_failure(stock.let_be):  # if no thread is available
            threading.Thread(target=fetching, name="txsaga-numbers", daemon=True).start()

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._stocks: dict[int, _Stock] = {}
        self._process = this_process()
