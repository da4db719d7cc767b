"""
What became of branches, until it is written down: with the next batch of anybody's, or after a moment.

Nobody waits for a note, so none has a commit of its own. If they are lost with the process, recovery asks their
resources once more and finds the branches done.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable

from txsaga.ports.branches import Noted

LINGER = 0.25
"""Seconds that a note waits for a batch to go with."""
MOST = 10_000
"""What waits longer than that is left to recovery."""
AT_ONCE = 500


class Notes:
    """Notes that wait for a batch."""

    def __init__(self) -> None:
        self.submit: Callable[[Noted], object] = lambda _: None
        self._waiting: deque[Noted] = deque(maxlen=MOST)
        self._timer: threading.Timer | None = None
        self._process = os.getpid()

    def add(self, notes: Iterable[Noted]) -> None:
        """Leave notes to the next batch; without one they are written by themselves."""
        if self._process != os.getpid():
            self._start_anew()  # those of a forked child's parent are the parent's
        self._waiting.extend(notes)
        if self._timer is None and self._waiting:
            self._timer = threading.Timer(LINGER, self.flush)
            self._timer.name, self._timer.daemon = "txsaga-notes", True
            self._timer.start()

    def taken(self) -> list[Noted]:
        """Take what waits, to be written now."""
        found: list[Noted] = []
        try:
            while len(found) < AT_ONCE:
                found.append(self._waiting.popleft())
        except IndexError:
            pass
        return found

    def flush(self) -> None:
        """Write what waits as a batch of its own."""
        self._timer = None
        while waiting := self.taken():
            for note in waiting:
                self.submit(note)

    def close(self) -> None:
        """Hand everything over; nothing is waited for."""
        timer = self._timer
        if timer is not None:
            timer.cancel()
        self.flush()

    def _start_anew(self) -> None:
        self._waiting.clear()
        self._timer = None
        self._process = os.getpid()
