"""
Whether our statements are prepared in a session of somebody's pool.

Others drop them: the driver drops all statements of a session behind a rollback, also one to a savepoint, and behind
DROP and ALTER; a pooler changes sessions. If that were not noted, each transaction would try and fail first.
"""

from __future__ import annotations

from collections.abc import Callable

WORTH = 4
"""Uses for which it pays to prepare; where they don't last as long it is not tried again."""


class Prepared:
    """Our statements in one session."""

    __slots__ = ("_given_up", "_there", "_uses")

    def __init__(self) -> None:
        self._there = self._given_up = False
        self._uses = 0

    def use(self, prepare: Callable[[], bool]) -> bool:
        """Tell whether they can be used, preparing them where that is worth it."""
        if not self._there and not self._given_up:
            self._there, self._uses = prepare(), 0
            self._given_up = not self._there
        self._uses += 1
        return self._there

    def lose(self) -> None:
        """Note that the server knows them no more."""
        self._there, self._given_up = False, self._uses < WORTH
