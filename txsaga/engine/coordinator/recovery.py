"""
Recovery: resources are told what was decided when their owner could not do it.

It decides nothing. A decided transaction's branches are committed where the decision names them, rolled back
otherwise; a prepared branch that nobody decided yet is left alone, because its owner may live. One that no
transaction of this incarnation knows was never decided and never will be: it is rolled back (presumed abort). Each
resource is worked on by itself and has its own pause after a failure, so a dead one does not slow the others; what it
holds waits for it for as long as it takes. Any number of copies may run. If it never runs, locks of dead owners stay.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from txsaga.engine.coordinator.work import noted
from txsaga.engine.kernel import Kernel
from txsaga.errors import EvidenceMissing, ResourceUnknown, TxSagaError, UnknownTransaction
from txsaga.errors.xa import RetryLater
from txsaga.model import facts
from txsaga.model.branch import HEURISTIC, Branch, BranchId, BranchState
from txsaga.model.decision import Decision
from txsaga.ports.branches import NONE, Noted
from txsaga.ports.participants import Participant

logger = logging.getLogger("txsaga")

FRESH = timedelta(seconds=1)
"""What was decided less long ago is its owner's: he is about to tell the resources."""
PAGE = 1_000
SHORTEST, LONGEST = 1.0, 60.0
"""Seconds of pause after a failure of a resource."""
SCAN = 30.0
"""Seconds between two looks for prepared branches that no transaction waits for."""
AT_ONCE = 8

Told = tuple[Branch, Decision]


class Away:
    """Resources that could not be reached, each with its own pause."""

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[float, float]] = {}  # how long, and until when

    def is_due(self, resource: str) -> bool:
        """Tell whether a resource may be tried."""
        return time.monotonic() >= self._pauses.get(resource, (0.0, 0.0))[1]

    def failed(self, resource: str) -> float:
        """Note a failure; return the pause."""
        pause = min(self._pauses.get(resource, (SHORTEST / 2, 0.0))[0] * 2, LONGEST)
        self._pauses[resource] = pause, time.monotonic() + pause
        return pause

    def answered(self, resource: str) -> None:
        """Note that it is there."""
        self._pauses.pop(resource, None)


class Recovery:
    """Finishes the branches of decided transactions, and rolls back what nobody waits for."""

    name = "recovery"
    pause, rest = 1.0, 5.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._away = kernel, Away()
        self._scan_at = 0.0

    def run_once(self) -> int:
        """Tell resources what was decided; return how many branches are finished."""
        done = self._finish_all()
        if time.monotonic() >= self._scan_at:
            self._scan_at = time.monotonic() + SCAN
            done += self._scan_all()
        return done

    def _finish_all(self) -> int:
        done, after = 0, NONE
        while page := self._kernel.store.branches.unfinished(after=after, older=FRESH, limit=PAGE):
            after = page[-1][0][:3]
            done += sum(self._by_resource(page))
        return done

    def _by_resource(self, page: Sequence[Told]) -> list[int]:
        waiting: defaultdict[str, list[Told]] = defaultdict(list)
        for told in page:
            if self._away.is_due(told[0].resource):
                waiting[told[0].resource].append(told)
        if not waiting:
            return []
        with ThreadPoolExecutor(min(len(waiting), AT_ONCE), "txsaga-recovery") as pool:
            return list(pool.map(self._finish, waiting, waiting.values()))

    def _finish(self, resource: str, waiting: Sequence[Told]) -> int:
        notes: list[Noted] = []
        try:
            recorded, participant = self._kernel.participant(resource)
            for branch, decision in waiting:
                if branch.recorded != recorded.id:
                    raise EvidenceMissing(f"resource {resource!r} leads to another database than recorded")
                if note := self._finish_one(participant, branch, decision):
                    notes.append(note)
            self._away.answered(resource)
        except ResourceUnknown:
            self._away.failed(resource)
            logger.warning("resource %r is not registered here: %d branches wait for it", resource, len(waiting))
        except TxSagaError as away:
            pause = self._away.failed(resource)
            logger.warning("resource %r is away, tried again in %.0f s: %s", resource, pause, away)
        return self._note(notes)

    def _finish_one(self, participant: Participant, branch: Branch, decision: Decision) -> Noted | None:
        # Of a decided COMMIT only what the decision names is committed (R9).
        due = decision if branch.state is BranchState.PREPARED else Decision.ROLLBACK
        id = self._id(branch)
        try:
            with self._kernel.announce.around(facts.Finishing, branch.txid, about=participant.name):
                return noted(branch.txid, id, due, participant.finish(id, due))
        except RetryLater:
            return None  # the session that prepared it still lives

    def _note(self, notes: Sequence[Noted]) -> int:
        if not notes:
            return 0
        for note in notes:
            if note.why:
                logger.error("branch %d of transaction %d: %s", note.number, note.txid, note.why)
        with self._kernel.announce.around(facts.Noting, *dict.fromkeys(note.txid for note in notes)):
            return sum(answer is True for answer in self._kernel.store.branches.write(notes))

    def _scan_all(self) -> int:
        done = 0
        for recorded in self._kernel.store.registry.enlisted():
            resource = recorded.name
            if not self._away.is_due(resource):
                continue
            try:
                found, participant = self._kernel.participant(resource)
                if found != recorded:
                    continue  # the name leads elsewhere now
                done += sum(self._settle_orphan(participant, id) for id in self._prepared(participant))
            except ResourceUnknown:
                self._away.failed(resource)  # others may reach it
            except TxSagaError as away:
                pause = self._away.failed(resource)
                logger.warning("resource %r can't be searched, tried again in %.0f s: %s", resource, pause, away)
        return done

    def _prepared(self, participant: Participant) -> Sequence[BranchId]:
        return participant.prepared(self._kernel.store.registry.identity.uuid.hex)

    def _settle_orphan(self, participant: Participant, id: BranchId) -> bool:
        """Roll back a prepared branch that its transaction's decision does not name."""
        try:
            txid = self._kernel.store.registry.identity.own(id.transaction)
        except UnknownTransaction:
            logger.error(
                "branch %s in %r is of an earlier life of the store: settle it by hand", id.gid, participant.name
            )
            return False
        known = {(each.number, each.attempt): each for each in self._kernel.store.branches.of(txid)}
        branch = known.get((id.number, id.attempt))
        if branch is not None and (branch.unfinished or branch.state in HEURISTIC):
            return False  # its turn comes with its transaction's decision
        if branch is None and self._is_open(txid):
            return False
        logger.warning("branch %s in %r is named by no decision: rolled back", id.gid, participant.name)
        with self._kernel.announce.around(facts.Finishing, txid, about=participant.name):
            participant.finish(id, Decision.ROLLBACK)
        return True

    def _is_open(self, txid: int) -> bool:
        with self._kernel.store.ledgers.open() as ledger:
            return ledger.lock(txid) is not None and ledger.standing(txid) is None

    def _id(self, branch: Branch) -> BranchId:
        transaction = self._kernel.store.registry.identity.transaction(branch.txid)
        return BranchId(transaction, branch.number, branch.attempt)
