"""
Drop, page by page, what resources keep of finished branches that no process asks about any more.

The row of a commit is dropped some time after the resource has acknowledged the decision, a barrier after longer than
any local transaction can last (R10). Heuristic outcomes stay until an operator forgets them, and branches that this
store has no row of stay too. It decides nothing. If it never runs, small rows and markers pile up.
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
"""An owner that sleeps for less than this still finds its row."""
PAUSE = 600.0
"""Seconds between two cleanups of a resource."""


class RecoveryCleanup:
    """Has resources drop what no process needs."""

    def __init__(self, kernel: Kernel, ages: Ages = KEPT) -> None:
        self._kernel, self._ages = kernel, ages
        self._due: dict[str, float] = {}

    def settle(self, participant: Participant) -> int:
        """Let a resource drop what is old enough, unless it did so recently; return the number of branches."""
        name = participant.name
        if time.monotonic() < self._due.get(name, 0.0):
            return 0
        self._due[name] = time.monotonic() + PAUSE
        pages = _Pages(self._kernel, name)
        try:
            dropped = participant.sweep(self._kernel.store.registry.identity.uuid.hex, self._ages, pages.over)
        except RightsMissing as missing:  # only disk space depends on it
            logger.warning("%s; they stay", missing)
            return 0
        pages.done()
        return dropped


class _Pages:
    """The pages of one cleanup of a resource; each is announced before and after it is dropped."""

    def __init__(self, kernel: Kernel, resource: str) -> None:
        self._kernel, self._resource = kernel, resource
        self._under_way: tuple[int, ...] = ()

    def over(self, branches: Sequence[BranchId]) -> Collection[BranchId]:
        """Return those that no process asks about any more."""
        self.done()
        places = {place: branch for branch in branches for place in self._places(branch)}
        found = sorted(self._kernel.store.branches.over(places.keys()))
        if found:
            self._under_way = tuple(dict.fromkeys(txid for txid, _, _ in found))
            self._kernel.announce(facts.Tidying(self._under_way, about=self._resource))
        return [places[place] for place in found]

    def done(self) -> None:
        """Announce that the previous page is dropped."""
        if self._under_way:
            self._kernel.announce(facts.Tidied(self._under_way, about=self._resource))
            self._under_way = ()

    def _places(self, branch: BranchId) -> list[tuple[int, int, int]]:
        try:
            txid = self._kernel.store.registry.identity.own(branch.transaction)
        except UnknownTransaction:
            return []  # of an incarnation of the store that this one does not know
        return [(txid, branch.number, branch.attempt)]
