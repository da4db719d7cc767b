"""
Scan for what transactions hold: branches that are prepared in their resources, or heuristic.

It is read-only. It asks every resource that ever held a branch before it returns anything: if one can't be asked, an
error names it, and no list is silently incomplete. If this never runs, recovery does its work all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from txsaga.core.kernel import Kernel
from txsaga.core.records import Group
from txsaga.errors import ResourceManagerFailed, TxSagaError
from txsaga.flows.branch import HEURISTIC, BranchId, BranchState
from txsaga.flows.recovery import own_number
from txsaga.flows.requests import NONE

PAGE = 100


class Scope(StrEnum):
    """Whose branches are searched for."""

    RESTRICTED = "restricted"  # those of one producer group, or of a client's groups in a cluster
    GLOBAL = "global"  # all of the store, of its earlier incarnations and of other coordinators too


class Recovered(NamedTuple):
    """A branch that still needs attention."""

    resource: str
    gid: str
    txid: int | None  # None: it is of an earlier incarnation of the store
    state: BranchState


class Search:
    """Finds branches that are prepared or heuristic."""

    def __init__(self, kernel: Kernel, group: Group | None = None) -> None:
        self._kernel, self._group = kernel, group

    def pages(self, size: int = PAGE) -> Iterator[list[Recovered]]:
        """Scan all resources, then yield the branches in pages, by resource."""
        # A heuristic branch may be held as well: then the store's state says more.
        found = {(each.resource, each.gid): each for each in (*self._held(), *self._heuristics())}
        waiting = iter(sorted(found.values()))
        return iter(lambda: list(islice(waiting, min(size, sys.maxsize))), [])

    def _held(self) -> Iterator[Recovered]:
        identity = self._kernel.store.registry.identity
        for recorded in self._kernel.store.registry.enlisted():
            try:
                participant = self._kernel.reach(recorded.name)
                if participant.database != recorded.database:
                    raise ResourceManagerFailed(f"resource {recorded.name!r} points to another database than recorded")
                found = participant.prepared(identity.uuid.hex)
            except TxSagaError as reason:
                raise ResourceManagerFailed(f"resource {recorded.name!r} can't be searched: {reason}") from reason
            for id in found:
                txid = own_number(self._kernel, id)
                if self._is_wanted(txid):
                    yield Recovered(recorded.name, id.gid, txid, BranchState.PREPARED)

    def _heuristics(self) -> Iterator[Recovered]:
        store, after = self._kernel.store, NONE
        while page := store.work.branches_in(HEURISTIC, after=after):
            after = page[-1][:3]
            for branch in page:
                if self._is_wanted(branch.txid):
                    id = BranchId(store.registry.identity.transaction(branch.txid), branch.number, branch.attempt)
                    yield Recovered(branch.resource, id.gid, branch.txid, branch.state)

    def _is_wanted(self, txid: int | None) -> bool:
        if self._group is None:
            return True
        view = None if txid is None else self._kernel.store.overview.transaction(txid)
        return view is not None and view.group == self._group.name
