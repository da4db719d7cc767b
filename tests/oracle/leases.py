"""Leases in memory, by the clock of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tests.oracle.home import Home
from txsaga.checkback.leases_store import Leases
from txsaga.checkback.questions import Lead
from txsaga.inspect.overview import LastRound

ZERO = timedelta(0)


class Held(NamedTuple):
    """Who holds a lease, in whose turn, until when."""

    holder: str
    epoch: int
    until: datetime


class MemoryLeases(Leases):
    """Leases by kind and name."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._held: dict[tuple[str, str], Held] = {}

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a lease that nobody holds, or hold one's own for longer."""
        with self._home.lock:
            now, held = self._home.now(), self._held.get((kind, name))
            alive = held is not None and held.until > now
            if held is not None and alive and held.holder != holder:
                return None
            epoch = 1 if held is None else held.epoch + (not alive)
            self._held[kind, name] = Held(holder, epoch, now + ttl)
            return Lead(kind, name, holder, epoch)

    def holds(self, lead: Lead) -> bool:
        """Tell whether a lead is still in its holder's hands."""
        held = self._held.get((lead.kind, lead.name))
        return held is not None and held[:2] == (lead.holder, lead.epoch) and held.until > self._home.now()

    def release(self, lead: Lead) -> None:
        """Give a lease back."""
        with self._home.lock:
            if self.holds(lead):
                self._held[lead.kind, lead.name] = Held(lead.holder, lead.epoch, self._home.now())

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Show that a member of each of these kinds is alive."""
        with self._home.lock:
            self._held |= {(kind, name): Held(name, 1, self._home.now() + ttl) for kind in kinds}

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Show that it has left."""
        with self._home.lock:
            for kind in kinds:
                self._held.pop((kind, name), None)

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the names that are alive, by kind."""
        with self._home.lock:
            now = self._home.now()
            living = sorted(place for place, held in self._held.items() if held.until > now)
            return {kind: [name for each, name in living if each == kind] for kind in kinds}

    def last_round(self, role: str) -> LastRound | None:
        """Tell who led the last round of a role: its lease ends with it."""
        with self._home.lock:
            held = self._held.get(("round", role))
            return None if held is None else LastRound(leader=held.holder, ago=max(self._home.now() - held.until, ZERO))
