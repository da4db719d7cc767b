"""
Whose a block is while it ends: its own thread's, or the turn's that it is in.

A thread that is interrupted while it waits goes without its block. One that no turn has taken is its own again, and
nothing of it was done; one that a turn has is left by that turn. If nobody noted that, the sessions of a block would be
given back while another thread decides about what they hold.
"""

from __future__ import annotations

from threading import get_ident

from txsaga.engine.waiting import stack


def who() -> object:
    """Name the thread that runs here, or the task."""
    return stack() or get_ident()


class Hand:
    """What two threads may reach for: the first one has it, however often they ask."""

    __slots__ = ("_first", "_own")

    def __init__(self) -> None:
        self._own = who()
        self._first: dict[str, object] = {}  # who began its turn, and who ended it

    def take(self, runner: object) -> bool:
        """Take it for a turn; tell whether its thread was still there."""
        return self._first.setdefault("began", (runner,)) is not self

    def give_back(self) -> bool:
        """End its turn; tell whether its thread was still there."""
        return self._first.setdefault("ended", None) is not self

    def go(self) -> bool:
        """Go without it; tell whether another's turn has it, which leaves it then. Said again it is the same."""
        runner = self._first.setdefault("began", self)
        if runner is self or runner == (self._own,):
            return False
        return self._first.setdefault("ended", self) is self

    @property
    def taken(self) -> bool:
        """Tell whether it ever was in a turn."""
        return self._first.get("began", self) is not self

    @property
    def gone(self) -> bool:
        """Tell whether its thread went while a turn had it."""
        return self._first.get("ended") is self
