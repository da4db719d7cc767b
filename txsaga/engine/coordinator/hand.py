"""
Whose a block is while it ends: its own thread's, or the turn's that it is in.

A thread that is interrupted while it waits goes without its block. One that no turn has taken is its own again, and
nothing of it was done; one that a turn has is left by that turn. If nobody noted that, the sessions of a block would be
given back while another thread decides about what they hold.
"""

from __future__ import annotations

from enum import Enum, auto


class Went(Enum):
    """What a thread leaves behind that goes while its block ends."""

    UNTOUCHED = auto()  # no turn has it, and none takes it any more
    IN_TURN = auto()  # whoever runs the turn leaves it
    OVER = auto()  # its turn is over: the answer is lost


class Hand:
    """What two threads may reach for, of whom one gets it."""

    __slots__ = ("_end", "_start")

    def __init__(self) -> None:
        self._start, self._end = [None], [None]

    def take(self) -> bool:
        """Take it for a turn; tell whether its thread was still there."""
        return _got(self._start)

    def give_back(self) -> bool:
        """End its turn; tell whether its thread was still there."""
        return _got(self._end)

    def go(self) -> Went:
        """Go without it."""
        if _got(self._start):
            return Went.UNTOUCHED
        return Went.IN_TURN if _got(self._end) else Went.OVER


def _got(token: list[None]) -> bool:
    try:
        token.pop()
    except IndexError:
        return False
    return True
