"""Leases: who leads, and who is alive, for a time that only the store's clock measures."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from txsaga.model.asking import Lead


class Leases(Protocol):
    """Leases by kind and name."""

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a lease that nobody holds, or hold one's own for longer; None while it is another's."""

    def release(self, lead: Lead) -> None:
        """Give a lease back; one that was lost meanwhile stays the other's."""

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Show that a member of each of these kinds is alive."""

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Show that it has left."""

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the names that are alive, by kind."""
