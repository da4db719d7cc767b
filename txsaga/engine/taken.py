"""
What a member took up of its questions, and how many more it takes up.

A question's time to answer runs from when it is taken up, so no more are taken up than begin soon, and nobody waits for
its checker any longer. It knows no store and starts no thread. If room never shrank, what slow checkers leave waiting
would be late for nobody's fault.
"""

from __future__ import annotations

import threading
import time
from enum import Enum, auto

from txsaga.model.asking import Asked

MOST = 2_000
"""Questions that are taken up and not answered yet."""
SOON = 0.5
"""Seconds that a question may wait here for a thread, while more are taken up."""
FASTEST = 8
"""So many times as much room at a time: a wait grows with it, and is still not long."""


class TakenState(Enum):
    """How far a question is."""

    WAITS = auto()  # for a thread
    ASKED = auto()  # a checker is at it
    HANGS = auto()  # that has not returned in time, and its thread is replaced
    RETURNED = auto()
    CAME_LATE = auto()  # it returned when its thread was replaced


class Taken:
    """A question that was taken up: it waits for a thread, or a checker is at it."""

    def __init__(self, asked: Asked, at: float) -> None:
        self._lock = threading.Lock()
        self.renew(asked, at)
        self._state = TakenState.WAITS
        self._began = at

    @property
    def txid(self) -> int:
        """The transaction that it is about."""
        return self.asked.doubt.txid

    @property
    def group(self) -> int:
        """The group of its transaction."""
        return self.asked.doubt.group

    @property
    def runs_for(self) -> float:
        """The seconds since its checker began."""
        return time.monotonic() - self._began

    @property
    def replaced(self) -> bool:
        """Whether another thread is in the place of the one that its checker had."""
        return self._state is TakenState.CAME_LATE

    def renew(self, asked: Asked, at: float) -> None:
        """Note that it was put again."""
        self.asked, self.at = asked, at
        self.until = at + asked.patience.total_seconds() / 2

    def begin(self) -> bool:
        """Let a checker be at it; False when it is too late for that."""
        with self._lock:
            now = time.monotonic()
            if now >= self.until:
                return False
            self._state, self._began = TakenState.ASKED, now
            return True

    def give_back(self, *, at_once: bool) -> bool:
        """Tell whether it is given back: no checker began in time, or the one of an earlier question hangs."""
        with self._lock:
            late = time.monotonic() >= self.until  # from then on none begins
            return late if self._state is TakenState.WAITS else self._state is TakenState.HANGS and (late or at_once)

    def leave(self) -> bool:
        """Wait no longer for its checker; False while its time runs, and once it is left or returned."""
        with self._lock:
            over = time.monotonic() - self.at >= self.asked.patience.total_seconds()
            if self._state is not TakenState.ASKED or not over:
                return False
            self._state = TakenState.HANGS
            return True

    def end(self) -> None:
        """Note that its checker returned."""
        with self._lock:
            late = self._state in (TakenState.HANGS, TakenState.CAME_LATE)
            self._state = TakenState.CAME_LATE if late else TakenState.RETURNED


class Room:
    """How many questions are taken up at the same time."""

    def __init__(self, threads: int) -> None:
        self._threads = self.places = threads
        self.waited = 0.0  # what the last question waited for its thread

    def learn(self, answered: int, late: int) -> None:
        """Grow by what was answered, as far as checkers are quick; shrink where what was taken up waits."""
        if late or self.waited >= SOON:
            self.places = max(self.places // 2, self._threads)
        else:
            times = FASTEST if self.waited < SOON / FASTEST else 2
            self.places = min(self.places + (times - 1) * answered, max(MOST, self._threads))
