"""
Roll back prepared branches that no decision names or ever will, so that their locks do not stay for ever (R9).

A branch that its owner may still bring to a decision is left alone. So is one that an earlier incarnation of the store
prepared: after a restore, nothing shows what was decided after the restored moment (R8). A transaction without a key
has no row before its decision. If its branch is held for long, it is fenced first: the fence is a decision, and the
first decision is final, so an owner that wakes up later can't commit what is rolled back here.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.errors import RetryLater, StoreUnavailable, UnknownTransaction
from txsaga.flows.branch import HEURISTIC, Branch, BranchId, BranchState
from txsaga.flows.calls import BranchesWritten, Fence
from txsaga.resources.participant import Participant

logger = logging.getLogger("txsaga")

KEPT = HEURISTIC | {BranchState.FORGOTTEN}
"""States of branches that an operator has to handle."""
LONE = timedelta(seconds=30)
"""An owner with yes votes and no decision for so long is taken for dead, as is one whose lease has run out."""
LONGEST = 2.0
"""Seconds that the fences of one resource may take in a round: decided branches are finished only after them."""
WHO, WHY = "recovery", "a resource held its branch, and nobody had decided it"


class Orphans:
    """Finds and rolls back prepared branches that belong to no live transaction."""

    def __init__(self, kernel: Kernel, lone: timedelta = LONE) -> None:
        self._kernel, self._lone = kernel, lone.total_seconds()
        self.left: dict[str, int] = {}  # branches per resource that may have to be rolled back soon
        self._told: set[BranchId] = set()
        self._seen: dict[str, dict[BranchId, float]] = {}  # branches without a row, and when first seen
        self._late: dict[str, list[int]] = {}  # owner was writing a decision; the last tried come last

    def settle(self, participant: Participant) -> tuple[int, tuple[str, ...]]:
        """Roll back a resource's orphans; return how many, and what an earlier incarnation of the store prepared."""
        ours, earlier = dict[BranchId, int](), list[BranchId]()
        for id in self._prepared(participant):
            try:
                ours[id] = self._kernel.store.registry.identity.own(id.transaction)
            except UnknownTransaction:
                earlier.append(id)
        known = self._kernel.store.branches.written(set(ours.values()))
        identity = self._kernel.store.registry.identity
        alone = [id for id, txid in ours.items() if txid not in known]
        earlier += [id for id in alone if identity.incarnation_of(ours[id]) != identity.incarnation]
        for id in earlier:
            self._tell(participant.name, id)
        lone = self._long_alone(participant.name, [id for id in alone if id not in earlier])
        orphans = [id for id, txid in ours.items() if txid in known and self._is_orphan(id, known[txid])]
        orphans += self._fenced(participant.name, {id: ours[id] for id in lone})
        # Skip branches that were finished since they were listed.
        still = set(self._prepared(participant)) if orphans else set[BranchId]()
        done = [id for id in orphans if id in still and self._rolled_back(participant, id)]
        waits = set(alone).difference(earlier, done) or still.intersection(orphans).difference(done)
        self.left[participant.name] = len(waits)
        return len(done), tuple(id.gid for id in earlier)

    def _prepared(self, participant: Participant) -> Sequence[BranchId]:
        return participant.prepared(self._kernel.store.registry.identity.uuid.hex)

    def _is_orphan(self, id: BranchId, known: BranchesWritten) -> bool:
        branch = next((each for each in known.branches if (each.number, each.attempt) == (id.number, id.attempt)), None)
        if branch is None:
            return known.decision is not None
        if branch.state in KEPT:
            return False
        return not branch.unfinished or (known.owner > branch.attempt and self._is_superseded(branch))

    def _is_superseded(self, branch: Branch) -> bool:
        """Return whether a later owner continues without this branch; it would wait for the branch's locks (R4)."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(branch.txid)
            if life is None or life.lease is not None:
                return False  # the process that takes over a flow decides itself what it leaves out
            return life.owner > branch.attempt and ledger.standing(branch.txid) is None

    def _long_alone(self, resource: str, lone: Sequence[BranchId]) -> list[BranchId]:
        """Return the branches first seen so long ago that their owner is not about to decide."""
        now, before = time.monotonic(), self._seen.get(resource, {})
        self._seen[resource] = {id: before.get(id, now) for id in lone}
        return [id for id, since in self._seen[resource].items() if now - since >= self._lone]

    def _fenced(self, resource: str, lone: Mapping[BranchId, int]) -> list[BranchId]:
        """Make sure that these are not decided any more; return those that are not committed.

        A transaction whose owner is writing its decision can't be fenced. It does not delay the others: the next round
        tries it after them.
        """
        txids, before = dict.fromkeys(lone.values()), self._late.get(resource, [])
        groups = deque([[txid for txid in txids if txid not in before], *([txid] for txid in before if txid in txids)])
        fenced, late, until = set[int](), list[int](), time.monotonic() + LONGEST
        while groups and time.monotonic() < until:
            group = groups.popleft()
            try:
                fenced |= self._fence(group) if group else set()
            except StoreUnavailable as error:
                if len(group) > 1:
                    groups.extendleft([group[len(group) // 2 :], group[: len(group) // 2]])
                    continue
                late += group
                logger.warning("transaction %d could not be fenced, the next round tries again: %s", group[0], error)
        if groups:
            logger.warning(
                "resource %r: fences of %d transactions wait for the next round", resource, sum(map(len, groups))
            )
        self._late[resource] = [txid for txid in chain.from_iterable(groups) if txid in before] + late
        return [id for id, txid in lone.items() if txid in fenced]

    def _fence(self, txids: Sequence[int]) -> set[int]:
        with self._kernel.announce.around(facts.Deciding, *txids, about=Decision.ROLLBACK.name):
            stands = self._kernel.store.branches.write([Fence(txid, WHO, WHY) for txid in txids])
        return {txid for txid, standing in zip(txids, stands, strict=True) if standing is Decision.ROLLBACK}

    def _rolled_back(self, participant: Participant, id: BranchId) -> bool:
        logger.warning("branch %s in %r is named by no decision: rolled back", id.gid, participant.name)
        txid = self._kernel.store.registry.identity.own(id.transaction)
        try:
            with self._kernel.announce.around(facts.Finishing, txid, about=participant.name):
                participant.finish(id, Decision.ROLLBACK)
        except RetryLater:
            return False  # the session that prepared it is still alive
        return True

    def _tell(self, resource: str, id: BranchId) -> None:
        if id not in self._told:
            self._told.add(id)
            logger.error("branch %s in %r is of an earlier life of the store: settle it by hand", id.gid, resource)
