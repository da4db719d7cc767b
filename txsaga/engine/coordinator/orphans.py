"""
Prepared branches that no decision names, and never will: they are rolled back, or their locks stay for ever (R9).

It must not decide anything. What an owner may still bring to its decision is left alone, and so is what an earlier
life of the store prepared: who restored the store can't know what was decided behind the restored moment (R8).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txsaga.engine.kernel import Kernel
from txsaga.errors import UnknownTransaction
from txsaga.errors.xa import RetryLater
from txsaga.model import facts
from txsaga.model.branch import HEURISTIC, Branch, BranchId, BranchState
from txsaga.model.decision import Decision
from txsaga.ports.participants import Participant

logger = logging.getLogger("txsaga")

KEPT = HEURISTIC | {BranchState.FORGOTTEN}
"""What a person has to do with."""


class Orphans:
    """What is prepared in resources and waits for nobody."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._told: set[BranchId] = set()

    def settle(self, participant: Participant) -> tuple[int, tuple[str, ...]]:
        """Roll back a resource's orphans; return how many, and what an earlier life of the store prepared."""
        found, earlier, orphans = self._prepared(participant), list[str](), list[BranchId]()
        for id in found:
            try:
                txid = self._kernel.store.registry.identity.own(id.transaction)
            except UnknownTransaction:
                earlier.append(id.gid)
                self._tell(participant.name, id)
                continue
            if self._is_orphan(txid, id):
                orphans.append(id)
        # Whoever finished one since it was listed has done it right.
        still = set(self._prepared(participant)) if orphans else set[BranchId]()
        return sum(self._rolled_back(participant, id) for id in orphans if id in still), tuple(earlier)

    def _prepared(self, participant: Participant) -> Sequence[BranchId]:
        return participant.prepared(self._kernel.store.registry.identity.uuid.hex)

    def _is_orphan(self, txid: int, id: BranchId) -> bool:
        named = {(each.number, each.attempt): each for each in self._kernel.store.branches.of(txid)}
        branch = named.get((id.number, id.attempt))
        if branch is None:
            view = self._kernel.store.registry.transaction(txid)
            return view is None or view.decision is not None
        if branch.state in KEPT:
            return False
        return not branch.unfinished or self._is_superseded(branch)

    def _is_superseded(self, branch: Branch) -> bool:
        """Tell whether a later owner goes on without it: it would wait for the locks that this one holds (R4)."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(branch.txid)
            return life is not None and life.owner > branch.attempt and ledger.standing(branch.txid) is None

    def _rolled_back(self, participant: Participant, id: BranchId) -> bool:
        logger.warning("branch %s in %r is named by no decision: rolled back", id.gid, participant.name)
        txid = self._kernel.store.registry.identity.own(id.transaction)
        try:
            with self._kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(id, Decision.ROLLBACK)
        except RetryLater:
            return False  # the session that prepared it still lives
        return True

    def _tell(self, resource: str, id: BranchId) -> None:
        if id not in self._told:
            self._told.add(id)
            logger.error("branch %s in %r is of an earlier life of the store: settle it by hand", id.gid, resource)
