"""
What a member took up of its questions, and how many more it takes up.

A question's time to answer runs from when it is taken up, so no more are taken up than begin soon, and nobody waits for
its checker any longer. It knows no store and starts no thread. If room never shrank, what slow checkers leave waiting
would be late for nobody's fault.
"""

from __future__ import annotations

import threading
import time

from txsaga.model.asking import Asked

MOST = 2_000
"""Questions that are taken up and not answered yet."""
SOON = 0.5
"""Seconds that a question may wait here for a thread, while more are taken up."""
FASTEST = 8
"""So many times as much room at a time: a wait grows with it, and is still not long."""


class Taken:
    """A question that was taken up: it waits for a thread, or a checker is at it."""

    def __init__(self, asked: Asked, at: float) -> None:
        self._lock = threading.Lock()
        self.renew(asked, at)
        self.begun = self.given_back = self.returned = self.left = False

    @property
    def txid(self) -> int:
        """The transaction that it is about."""
        return self.asked.doubt.txid

    def renew(self, asked: Asked, at: float) -> None:
        """Note that it was put again."""
        self.asked, self.at = asked, at
        self.until = at + asked.patience.total_seconds() / 2

    def begin(self) -> bool:
        """Let a checker be at it; False when it is too late for that."""
        with self._lock:
            self.begun = not self.given_back and time.monotonic() < self.until
            return self.begun

    def give_back(self) -> bool:
        """Let no checker begin any more; False while that may still be, or has been."""
        with self._lock:
            self.given_back = not self.begun and time.monotonic() >= self.until
            return self.given_back

    @property
    def hangs_for(self) -> float:
        """Return the seconds since it was taken up."""
        return time.monotonic() - self.at

    def leave(self) -> bool:
        """Wait no longer for its checker; False while its time runs, or once it returned."""
        with self._lock:
            late = self.hangs_for >= self.asked.patience.total_seconds()
            self.left = self.left or (self.begun and late and not self.returned)
            return self.left and not self.returned

    def end(self) -> None:
        """Note that its checker returned."""
        with self._lock:
            self.returned = True


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
