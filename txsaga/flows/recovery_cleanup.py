"""
What resources keep of branches that are over, and that nobody asks about any more: it is dropped, page by page.

A row that tells of a commit goes some time after the resource has acknowledged the decision, a barrier later than any
local transaction can last (R10). What stands against its decision stays until a person forgets it, and what this
store has no row of stays too. It decides nothing. If it never runs, small rows and markers pile up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from datetime import timedelta

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.errors import RightsMissing, UnknownTransaction
from txsaga.flows.branch import BranchId
from txsaga.resources.participant import Ages, Participant

logger = logging.getLogger("txsaga")

KEPT = Ages(committed=timedelta(hours=1), barriers=timedelta(days=30))
"""An owner that sleeps for less still finds its row."""
PAUSE = 600.0
"""Seconds between two looks into a resource."""


class RecoveryCleanup:
    """Has resources drop what they keep for nobody."""

    def __init__(self, kernel: Kernel, ages: Ages = KEPT) -> None:
        self._kernel, self._ages = kernel, ages
        self._due: dict[str, float] = {}

    def settle(self, participant: Participant) -> int:
        """Let a resource drop what is old enough, if it was not asked for a while; return of how many branches."""
        name = participant.name
        if time.monotonic() < self._due.get(name, 0.0):
            return 0
        self._due[name] = time.monotonic() + PAUSE
        pages = _Pages(self._kernel, name)
        try:
            dropped = participant.sweep(self._kernel.store.registry.identity.uuid.hex, self._ages, pages.over)
        except RightsMissing as missing:  # nothing but room depends on it
            logger.warning("%s; they stay", missing)
            return 0
        pages.done()
        return dropped


class _Pages:
    """What one look into a resource finds, page by page; each is announced before it goes and when it is gone."""

    def __init__(self, kernel: Kernel, resource: str) -> None:
        self._kernel, self._resource = kernel, resource
        self._under_way: tuple[int, ...] = ()

    def over(self, branches: Sequence[BranchId]) -> Collection[BranchId]:
        """Return those of which nobody asks any more."""
        self.done()
        places = {place: branch for branch in branches for place in self._places(branch)}
        found = sorted(self._kernel.store.branches.over(places.keys()))
        if found:
            self._under_way = tuple(dict.fromkeys(txid for txid, _, _ in found))
            self._kernel.announce(facts.Tidying(self._under_way, about=self._resource))
        return [places[place] for place in found]

    def done(self) -> None:
        """Tell that the page before is gone."""
        if self._under_way:
            self._kernel.announce(facts.Tidied(self._under_way, about=self._resource))
            self._under_way = ()

    def _places(self, branch: BranchId) -> list[tuple[int, int, int]]:
        try:
            txid = self._kernel.store.registry.identity.own(branch.transaction)
        except UnknownTransaction:
            return []  # of a life of the store that this one does not know
        return [(txid, branch.number, branch.attempt)]
