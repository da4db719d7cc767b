"""
The records of branches in another store: opened, closed by a vote, decided when their coordinator notifies them.

A record's key is the branch's name, so that each attempt is found from any process and opened once. Until it has voted
its store may roll it back if its owner is silent; from then on only the coordinator's decision counts (R15), made by
the same function as any other. If it never comes, the branch stays prepared, with what it consumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from uuid import UUID

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import DuplicateBranch, OutcomeUnknown, ProtocolError, RightsMissing
from txsaga.flows.branch import BranchId, Finish
from txsaga.messages.decide import DecidedBy
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


PART = 1
"""A branch is one contribution; its attempt is part of its name."""
PATIENCE = 5.0
"""Seconds to retry after a lost answer; recovery has more."""
OVERRULED = {Decision.COMMIT: Finish.COMMITTED, Decision.ROLLBACK: Finish.ROLLED_BACK}


class BranchRecords:
    """Records of branches in one store."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._lives = kernel, TxRecords(kernel)
        self._groups: dict[str, int] = {}  # the number of a coordinator's group never changes

    def open(self, branch: BranchId) -> TxRecord:
        """Open the record of a branch; `DuplicateBranch` if it exists."""
        try:
            life = self._create(branch)
        except OutcomeUnknown:  # no other process uses this attempt's name
            life = patiently(lambda: self._find(branch) or self._create(branch), PATIENCE)
        if life is None:
            raise DuplicateBranch(f"branch {branch.gid} is open here already")
        return life

    def add(self, life: TxRecord, rows: Sequence[Row]) -> None:
        """Store messages before the vote."""
        with self._kernel.announce.around(facts.Adding, life.txid), self._open() as ledger:
            self._lives.hold(ledger, life)
            _add(ledger, life, rows)

    def vote(self, life: TxRecord, rows: Sequence[Row]) -> None:
        """Store the remaining messages and vote yes, in one commit; repeating this is no error."""
        with self._kernel.announce.around(facts.Voting, life.txid), self._open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.state is TxState.PREPARED:
                return  # its answer was lost
            self._lives.own(ledger, life)
            _add(ledger, life, rows)
            ledger.move(life.txid, TxEvent.END)
            ledger.move(life.txid, TxEvent.PREPARE)

    def tell(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the coordinator's decision, or return the different one that was made before."""
        try:
            finish = self._told(branch, decision)
        except OutcomeUnknown:
            finish = patiently(lambda: self._told(branch, decision), PATIENCE)
        if decision is Decision.COMMIT:
            self._kernel.tell_decided()
        return finish

    def forget(self, branch: BranchId) -> None:
        """Drop the mark of a forced decision; refuse if nothing is decided."""
        with self._kernel.announce.around(facts.Noting, about=branch.gid), self._open() as ledger:
            life = ledger.latest(self._group(branch), branch.gid)
            if life is None or life.coordinator is None:
                return
            if ledger.standing(life.txid) is None:
                raise ProtocolError(f"branch {branch.gid} is {life.state}: only what is decided can be forgotten")
            ledger.release(life.txid)

    def _create(self, branch: BranchId) -> TxRecord | None:
        group = self._group(branch)
        with self._kernel.announce.around(facts.Opening, about=branch.gid), self._open() as ledger:
            return ledger.create(group, branch.gid, 1, coordinator=UUID(branch.store))

    def _told(self, branch: BranchId, decision: Decision) -> Finish:
        with self._kernel.announce.around(facts.Deciding, about=branch.gid), self._open() as ledger:
            life = ledger.latest(self._group(branch), branch.gid)
            if life is None:  # nothing was done under this name, and no later yes will count
                self._require_sight(ledger, branch)
                return Finish.DONE if decision is Decision.ROLLBACK else Finish.ROLLED_BACK
            standing = ledger.standing(life.txid)
            if standing is None:
                self._decide(ledger, life, branch, decision)
                return Finish.DONE
            if standing is not decision:
                return OVERRULED[standing]
            if life.coordinator is not None:
                ledger.release(life.txid)
            return Finish.DONE

    def _decide(self, ledger: Ledger, life: TxRecord, branch: BranchId, decision: Decision) -> None:
        if decision is Decision.COMMIT and not life.voted:
            raise ProtocolError(f"branch {branch.gid} is {life.state}: it holds no yes that could be committed")
        by = DecidedBy(who=f"store {life.coordinator}", why=f"it decided {branch.transaction}", told=True)
        self._kernel.decider.within(ledger, life.txid, decision, by)

    def _require_sight(self, ledger: Ledger, branch: BranchId) -> None:
        """Refuse to consider gone what this login can't see: its coordinator would assume a heuristic outcome."""
        if not ledger.sees(self._group(branch)):
            raise RightsMissing(
                f"this login is not shown the branches of store {branch.store} in this broker; grant it the producer "
                f"group coordinator-{branch.store}"
            )

    def _find(self, branch: BranchId) -> TxRecord | None:
        with self._open() as ledger:
            return ledger.latest(self._group(branch), branch.gid)

    def _group(self, branch: BranchId) -> int:
        """Return the number of the group of a coordinator's branches."""
        if branch.store not in self._groups:
            name = f"coordinator-{branch.store}"
            with self._kernel.announce.around(facts.Registering, about=f"producer group {name}"):
                self._groups[branch.store] = self._kernel.store.registry.group(name, transactional=True).id
        return self._groups[branch.store]

    def _open(self) -> AbstractContextManager[Ledger]:
        return self._kernel.store.ledgers.open()


def _add(ledger: Ledger, life: TxRecord, rows: Sequence[Row]) -> None:
    if rows:
        ledger.add(life, PART, rows)
        ledger.win(life.txid, PART, life.owner)
