"""
The lane of a flow, settled from any of its processes: its open unit commits or rolls back by itself.

A unit may have several prepared branches and a journal: its own decision makes them one; it is written to the home
store before the resource is notified, and recovery continues from there. If a resource can't vote, its unit is only a
journal, committed in one phase with its own evidence row: a commit whose answer was lost is found, not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import RegisteredResource, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import (
    OutcomeUnknown,
    OwnLock,
    StepsOpen,
    Superseded,
    TransactionError,
    TxSagaError,
    Unfinished,
    VotedNo,
)
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.flow_begin import locked, require_joined
from txsaga.flows.held_work import do_journal, free
from txsaga.flows.journal import Journalled
from txsaga.flows.requests import NamedBranch
from txsaga.flows.step import Step, StepState, Unit, last_attempts, open_unit
from txsaga.resources.participant import EnlistedBranch, Participant

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class LaneUnit(NamedTuple):
    """An open unit with all its contents."""

    row: Unit
    held: Sequence[Step]
    statements: Sequence[Journalled]
    everywhere: Sequence[Step]  # all that the flow holds in this resource, in this unit or not


class FlowLane:
    """The lane of one resource."""

    def __init__(self, kernel: Kernel, life: TxRecord, recorded: RegisteredResource, participant: Participant) -> None:
        self._kernel, self._life = kernel, life
        self._recorded, self._participant = recorded, participant

    def commit(self) -> None:
        """Commit the open unit now, independently of the flow; do nothing if there is none."""
        unit = self._begun(journal=True)
        if unit is None:
            return
        if not unit.statements:
            self._tell(unit, Decision.COMMIT)
        elif self._participant.capabilities.two_phase:
            self._commit_prepared(unit)
        else:
            self._commit_in_one_phase(unit)

    def roll_back(self) -> None:
        """Roll the open unit back; the flow continues."""
        unit = self._begun(journal=False)
        if unit is None:
            return
        if self._was_committed(unit, unit.row.attempt):
            raise TransactionError(f"the open unit of lane {unit.row.resource!r} was committed before, by its evidence")
        self._tell(unit, Decision.ROLLBACK)

    def hear_out(self) -> None:
        """Find out if a one-phase commit whose answer was lost succeeded: then it is no longer part of the flow."""
        if not self._participant.capabilities.two_phase:
            unit = self._begun(journal=False, settling=False)  # called by the process that ends the flow
            if unit is not None:
                self._was_committed(unit, unit.row.attempt)

    def _begun(self, *, journal: bool, settling: bool = True) -> LaneUnit | None:
        """Return the contents of the open unit; if its journal is to be executed, name the branch for it."""
        with self._kernel.announce.around(facts.Naming, self._life.txid), self._kernel.store.ledgers.open() as ledger:
            current, unit = locked(ledger, self._life), self._unit(ledger, settling=settling)
            if unit is None:
                return None
            if settling:
                require_joined(current)
            if not journal or not unit.statements:
                return unit
            flows, row, txid = ledger.flows, unit.row, self._life.txid
            if row.branch is not None and self._participant.capabilities.two_phase:
                flows.settle(txid, [(row.branch, row.attempt)], Decision.ROLLBACK)
            number = flows.name(txid, self._recorded.id, row.attempt + 1, aux=True, number=row.branch)
            flows.put(txid, row._replace(branch=number, attempt=row.attempt + 1))
            return unit._replace(row=row._replace(branch=number, attempt=row.attempt + 1))

    def _unit(self, ledger: Ledger, *, settling: bool) -> LaneUnit | None:
        flows, txid, name = ledger.flows, self._life.txid, self._participant.name
        row = open_unit(flows.units(txid), name)
        if row is None:
            return None
        last = last_attempts(flows.steps(txid))
        mine = [each for each in last if each.lane and (each.resource, each.unit) == row.place]
        under_way = [each.name for each in mine if each.state is StepState.STARTED]
        if under_way and settling:
            raise StepsOpen(txid, f"the open unit of lane {name!r}", under_way)
        statements = [each for each in flows.journal(txid) if (each.resource, each.unit) == row.place]
        everywhere = [each for each in last if each.holds_locks and each.resource == name]
        held = [each for each in mine if each.branch is not None and each.state is StepState.DONE]
        return LaneUnit(row, held, statements, everywhere)

    def _commit_prepared(self, unit: LaneUnit) -> None:
        branch, attempts = self._branch(unit), range(1, unit.row.attempt)  # of earlier processes
        free(self._kernel, self._life.txid, self._participant, [self._id(branch.number, each) for each in attempts])
        session = self._participant.enlist(branch)
        try:
            try:
                vote = self._prepared(unit, session, branch)
            except (VotedNo, OwnLock):
                with self._kernel.announce.around(facts.Finishing, self._life.txid, about=self._participant.name):
                    session.finish(Decision.ROLLBACK)()
                self._tell(unit, Decision.ROLLBACK)
                raise
            self._tell(unit, Decision.COMMIT, vote=vote)
        finally:
            session.leave()

    def _prepared(self, unit: LaneUnit, session: EnlistedBranch, branch: BranchId) -> Vote:
        do_journal(self._participant, session, branch, unit.statements, unit.everywhere)
        self._kernel.announce(facts.Voting((self._life.txid,), about=self._participant.name))
        vote = session.prepare()()
        self._kernel.announce(facts.Voted((self._life.txid,), about=self._participant.name))
        session.leave()  # it is finished by its name, like the unit's other branches
        return vote

    def _commit_in_one_phase(self, unit: LaneUnit) -> None:
        if self._was_committed(unit, unit.row.attempt - 1):
            return
        branch, txid, name = self._branch(unit), self._life.txid, self._participant.name
        session = self._participant.enlist(branch)
        try:
            do_journal(self._participant, session, branch, unit.statements, unit.everywhere)
            self._kernel.announce(facts.Working((txid,), about=name))
            session.commit(None)()
            self._kernel.announce(facts.Worked((txid,), about=name))
        except OutcomeUnknown:
            session.leave()
            if not self._was_committed(unit, unit.row.attempt):
                raise
            return
        except (VotedNo, OwnLock):
            session.leave()
            self._tell(unit, Decision.ROLLBACK)
            raise
        finally:
            session.leave()
        self._tell(unit, Decision.COMMIT, vote=Vote.PREPARED, evident=True)

    def _was_committed(self, unit: LaneUnit, last: int) -> bool:
        """Find out whether an attempt committed in one phase, and make sure that none does later."""
        row, two_phase = unit.row, self._participant.capabilities.two_phase
        if row.branch is None or two_phase:
            return False
        for attempt in range(1, last + 1):
            earlier = self._id(row.branch, attempt)
            with self._kernel.announce.around(facts.Fencing, self._life.txid, about=self._participant.name):
                found = self._participant.fence(earlier)
            if found is Finish.COMMITTED:
                self._tell(
                    unit._replace(row=row._replace(attempt=attempt)), Decision.COMMIT, vote=Vote.PREPARED, evident=True
                )
                return True
        return False

    def _tell(self, unit: LaneUnit, decision: Decision, *, vote: Vote | None = None, evident: bool = False) -> None:
        """Write the unit's own decision, or what its evidence shows, then notify the resource."""
        named = patiently(lambda: self._decided(unit, decision, vote, evident=evident))
        away: TxSagaError | None = None
        notes = []
        for number, attempt in named:
            branch = self._id(number, attempt)
            try:
                with self._kernel.announce.around(facts.Finishing, self._life.txid, about=self._participant.name):
                    found = self._participant.finish(branch, decision)
                notes.append(noted(self._life.txid, branch, decision, found, self._participant))
            except TxSagaError as reason:
                away = reason
        self._kernel.notes.add(notes)
        if away is not None and decision is Decision.COMMIT:
            raise Unfinished(self._life.txid, [self._participant.name]) from away

    def _decided(
        self, unit: LaneUnit, decision: Decision, vote: Vote | None, *, evident: bool
    ) -> Sequence[NamedBranch]:
        txid, row = self._life.txid, unit.row
        named: list[NamedBranch] = [(each.branch or 0, each.attempt) for each in unit.held]
        if row.branch is not None and vote is not None:
            named.append((row.branch, row.attempt))
        with self._kernel.announce.around(facts.Settling, txid, about=self._participant.name):
            with self._kernel.store.ledgers.open() as ledger:
                current, flows = locked(ledger, self._life), ledger.flows
                if not evident:
                    require_joined(current)  # the process that ends the flow has taken the open unit
                known = next(each for each in flows.units(txid) if each.place == row.place)
                if known.decision is not None:
                    if known.decision is decision:
                        return named
                    raise TransactionError(f"unit {row.number} of lane {row.resource!r} was settled the other way")
                if vote is not None and known.attempt != row.attempt and self._participant.capabilities.two_phase:
                    raise Superseded(txid)
                if row.branch is not None and vote is not None:
                    flows.hold(txid, (row.branch, row.attempt), vote)
                flows.settle(txid, named, decision)
                if row.branch is not None and decision is Decision.ROLLBACK:
                    flows.settle(txid, [(row.branch, attempt) for attempt in range(1, row.attempt + 1)], decision)
                flows.put(txid, row._replace(decision=decision))
        return named

    def _branch(self, unit: LaneUnit) -> BranchId:
        assert unit.row.branch is not None
        return self._id(unit.row.branch, unit.row.attempt)

    def _id(self, number: int, attempt: int) -> BranchId:
        return BranchId(self._kernel.store.registry.identity.transaction(self._life.txid), number, attempt)
