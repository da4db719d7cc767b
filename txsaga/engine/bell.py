"""
The bell beside which one thread sleeps: who is woken rings for the next one of its batch before it goes on.

Woken all at once they fight for the interpreter, and most of them sleep again before they have it. Whoever leaves rings
for the next. If one never does, since something was raised in it right there, those behind it are not rung: who sleeps
looks up by itself after a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

Line = deque["Bell"]
LOOKS_UP = 1.0
"""Seconds after which a sleeper looks for itself whether it was forgotten."""


class Bell:
    """Where one thread sleeps until it is rung."""

    __slots__ = ("_behind", "_gone", "_rung")

    def __init__(self) -> None:
        self._rung = threading.Lock()
        self._rung.acquire()
        self._behind, self._gone = Line(), False

    def sleep(self, seconds: float) -> None:
        """Sleep until it rings, or so many seconds, but for a while at most."""
        self._rung.acquire(timeout=min(seconds, LOOKS_UP))

    def leave(self) -> None:
        """Let the next one go on, now or once this bell is rung."""
        self._gone = True  # before it looks for a line: `ring` makes the line first and looks for who is gone then
        _ring_first(self._behind)

    def ring(self, line: Line) -> bool:
        """Wake who sleeps here; tell whether somebody is still here to ring for the next one of the line."""
        self._behind = line
        self._rung.release()
        return not self._gone


def ring(bells: Sequence[Bell]) -> None:
    """Wake everybody, one behind the other."""
    _ring_first(Line(bells))


def _ring_first(line: Line) -> None:
    while line:
        try:
            first = line.popleft()
        except IndexError:  # two who were at it took the last one
            return
        if first.ring(line):
            return
