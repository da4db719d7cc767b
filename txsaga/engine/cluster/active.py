"""
The brokers that a reader of a cluster reads from, from one connect to the next.

When one goes or comes back the reader is told by a connection error and connects anew. If it never does, it goes on
with those that are there.
"""

from __future__ import annotations

from collections.abc import Callable

from txsaga.engine.cluster.members import Members
from txsaga.errors import StoreUnavailable


class Active:
    """The active set of one reader."""

    def __init__(self, members: Members, on_reconnect: Callable[[], None]) -> None:
        self._members, self._on_reconnect = members, on_reconnect
        self.names, self._changes = members.available(), members.changes

    def reconnect(self) -> None:
        """Read from the brokers that are there now."""
        self._on_reconnect()
        self.names, self._changes = self._members.available(), self._members.changes

    def require_unchanged(self) -> None:
        """Raise `StoreUnavailable` when a broker went or came back since."""
        if self._members.changes == self._changes:
            return
        there = self._members.available()
        gone, back = set(self.names) - set(there), set(there) - set(self.names)
        if not gone and not back:
            self._changes = self._members.changes
            return
        told = [f"{name} went away" for name in sorted(gone)] + [f"{name} is back" for name in sorted(back)]
        raise StoreUnavailable(f"{', '.join(told)}; reconnect() reads from {', '.join(there) or 'none'}")
