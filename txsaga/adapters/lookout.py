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
PRICE = 4
"""What a look in vain costs; one that is worth it pays back 1."""
DEBT = 4 * PRICE
"""Where so much is owed most answers are slow: the disk is, or the server is far away."""
RESTS = 60
"""Answers for which nobody looks out then."""


class Lookout:
    """One who looks out for answers, as long as that pays."""

    def __init__(self) -> None:
        self._owed = self._rests = 0

    def look(self, readable: select.poll) -> None:
        """Return as soon as there is something to read, or when one should rather sleep."""
        if self._rests:
            self._rests -= 1
        elif not readable.poll(0):  # one that is there already tells nothing
            self._keep_looking(readable)

    def _keep_looking(self, readable: select.poll) -> None:
        until = time.perf_counter() + IMPATIENCE
        while True:
            os.sched_yield()  # the server may need this very processor
            if readable.poll(0):
                self._owed = max(0, self._owed - 1)
                return
            if time.perf_counter() > until:
                break
        self._owed += PRICE
        if self._owed >= DEBT:
            self._owed, self._rests = 0, RESTS
