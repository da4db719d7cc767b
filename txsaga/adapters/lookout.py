"""
Looking out for an answer before sleeping until it comes: being woken takes longer than most answers.

It costs a processor for that long. If it is left out, the sleep that follows it finds the same answer.
"""

from __future__ import annotations

import os
import select
import time

IMPATIENCE = 0.0004
"""Seconds for which one looks again and again."""
VAIN = 4
"""So many looks in vain, one after the other, tell of a slow disk, or of a server far away."""
RESTS = 60
"""Answers for which nobody looks out then."""


class Lookout:
    """One who looks out for answers of the same kind."""

    def __init__(self) -> None:
        self._vain = self._rests = 0

    def look(self, readable: select.poll) -> None:
        """Return as soon as there is something to read, or when one should rather sleep."""
        if self._rests:
            self._rests -= 1
            return
        until = time.perf_counter() + IMPATIENCE
        while not readable.poll(0):
            if time.perf_counter() > until:
                self._tire()
                return
            os.sched_yield()  # the server may need this very processor
        self._vain = 0

    def _tire(self) -> None:
        self._vain += 1
        if self._vain >= VAIN:
            self._vain, self._rests = 0, RESTS
