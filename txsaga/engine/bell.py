"""
The bell beside which one thread sleeps: who is woken rings for the next one of its batch before it goes on.

Woken all at once they fight for the interpreter, and most of them sleep again before they have it. If one that is rung
never rang for the next, all behind it would hang although their decisions are durable: so whoever leaves rings, and the
main thread, in which a signal may raise between the two, stands in no line.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

Line = deque["Bell"]


class Bell:
    """Where one thread sleeps until it is rung."""

    __slots__ = ("_behind", "_gone", "_rung", "in_line")

    def __init__(self) -> None:
        self._rung = threading.Lock()
        self._rung.acquire()
        self._behind, self._gone = Line(), False
        self.in_line = threading.get_ident() != threading.main_thread().ident

    def sleep(self, timeout: float | None) -> None:
        """Sleep until it rings, or so many seconds."""
        self._rung.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))

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
    line = Line(bell for bell in bells if bell.in_line)
    for bell in bells:
        if not bell.in_line:
            bell.ring(Line())
    _ring_first(line)


def _ring_first(line: Line) -> None:
    while line:
        try:
            first = line.popleft()
        except IndexError:  # two who were at it took the last one
            return
        if first.ring(line):
            return
