"""
Lanes: units of work in one resource that commit or roll back while the main transaction stays open.

    audit = tx.lane("audit")         in a coordinated block
    with audit as connection: …      the first statement opens a unit
    audit.commit()                   it is final, even if the main transaction rolls back
    with audit as connection: …      the next unit; left open, it follows the outcome

    flow.lane("audit").commit()      in a flow: settles what its steps did with lane="audit", from any of its processes

A resource has one lane in a transaction. Committed lane work is undone by a compensation, never by a rollback. A commit
in one phase whose answer was lost is found by its evidence row, not repeated. If the process dies, open units follow
the main transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga import errors
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.records import RegisteredResource, TxRecord
from txsaga.core.retry import patiently
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.enlisted import Enlisted
from txsaga.flows.flow_begin import entered, require_joined
from txsaga.flows.journal import Journalled
from txsaga.flows.requests import NamedBranch
from txsaga.flows.self_deadlock import held_by
from txsaga.flows.step import Step, StepState, Unit, last_attempts, open_unit
from txsaga.flows.step_attempts import free
from txsaga.flows.work import BranchPart, Work
from txsaga.resources.participant import Participant

if TYPE_CHECKING:
    from txsaga.flows.flows_store import FlowLedger


def able(kernel: Kernel, name: str) -> tuple[RegisteredResource, Participant]:
    """Return a resource that can have a lane; the error for any other names the limit."""
    try:
        recorded, participant = kernel.participant(name)
    except errors.ResourceUnknown:
        if any(topic.name == name for topic in kernel.store.registry.topics()):
            raise errors.ConfigError(
                f"{name!r} is a topic, and topics have no lanes; send with producer.send(…), which commits at "
                "once, or in the transaction"
            ) from None
        raise
    if not participant.capabilities.aux:
        raise errors.ConfigError(
            f"resource {name!r} is of kind {participant.capabilities.kind}, which has no auxiliary lanes; "
            "work in the main transaction, or use a database"
        )
    return recorded, participant


def committed_alone(work: Work, unit: str) -> Exception | None:
    """Commit a unit in one phase, or return why it did not; its evidence makes sure that it never does later."""
    try:
        work.commit(unit)
    except Exception as error:  # noqa: BLE001  # only the evidence shows whether it committed
        part, own = work.part(unit), work.self_deadlocks.found(unit)
        work.drop(unit)  # its session would block the barrier
        if own is not None:
            own.__cause__ = error
        if isinstance(error, errors.VotedNo):
            return own or error
        try:
            found = run_blocking(partial(part.participant.fence, part.branch))
        except errors.TxSagaError as silent:
            name = part.participant.name
            raise errors.OutcomeUnknown(
                f"it is unknown whether the unit of lane {name!r} was committed: {silent}"
            ) from error
        if found is Finish.COMMITTED:
            return None
        return own or error
    return None


class BlockLane:
    """The lane of one resource in a coordinated block: its open unit is a session of this process."""

    def __init__(self, kernel: Kernel, branches: Enlisted, name: str, require_open: Callable[[str], None]) -> None:
        self._branches, self._require_open = branches, require_open
        self._resource, self._participant = able(kernel, name)
        self._unit: str | None = None
        self._turn = Lock()  # for threads that open or settle a unit

    def __enter__(self) -> Any:  # for most resources, a SQLAlchemy connection
        """Return the session of the open unit; open one if needed."""
        self._require_open("work in a lane")
        with self._turn:
            if self._unit is None:
                self._unit = self._opened()
            unit = self._unit
        return self._branches.work.handle(unit)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave the unit open; raise `OwnLock` if it waited for its own transaction."""
        if error is not None and self._unit is not None:
            self._branches.work.refuse_own_lock(self._unit, error)

    def commit(self) -> None:
        """Commit the open unit now; do nothing if there is none."""
        self._settle(Decision.COMMIT)

    def roll_back(self) -> None:
        """Roll the open unit back; the main transaction continues."""
        self._settle(Decision.ROLLBACK)

    def _settle(self, decision: Decision) -> None:
        self._require_open("settle a lane")
        with self._turn:
            unit, self._unit = self._unit, None
        if unit is None:
            return
        work = self._branches.work
        failure = committed_alone(work, unit) if decision is Decision.COMMIT else None
        work.drop(unit)
        self._branches.note(work.part(unit).branch, decision if failure is None else Decision.ROLLBACK)
        if failure is not None:
            raise failure

    def _opened(self) -> str:
        """Name a unit before its work; return its key."""
        (number,) = run_blocking(partial(self._branches.named, [self._resource.id], aux=True))
        key = f"{self._participant.name} unit {number}"
        self._branches.add(key, self._participant, number, aux=True)
        return key


class LaneUnit(NamedTuple):
    """The open unit of a flow's lane with all its contents: prepared branches, and a journal."""

    row: Unit
    held: Sequence[Step]
    statements: Sequence[Journalled]
    everywhere: Sequence[Step]  # all that the flow holds in this resource, in this unit or not


class FlowLane:
    """The lane of one resource in a flow: its own decision makes the contents of the open unit one.

    That decision is written before the resource is notified, and recovery continues from there. If the resource can't
    vote, the unit is only a journal, committed in one phase.
    """

    def __init__(self, kernel: Kernel, life: TxRecord, name: str) -> None:
        self._kernel, self._life = kernel, life
        self._recorded, self._participant = able(kernel, name)
        self._two_phase = self._participant.capabilities.two_phase

    def commit(self) -> None:
        """Commit the open unit now, independently of the flow; do nothing if there is none."""
        unit = self._begun(journal=True)
        if unit is None or self._was_committed(unit, unit.row.attempt - 1):
            return
        if unit.statements:
            self._commit_journal(unit)
        else:
            self._tell(unit, Decision.COMMIT)

    def roll_back(self) -> None:
        """Roll the open unit back; the flow continues."""
        unit = self._begun(journal=False)
        if unit is None:
            return
        if self._was_committed(unit, unit.row.attempt):
            raise errors.TransactionError(
                f"the open unit of lane {unit.row.resource!r} was committed before, by its evidence"
            )
        self._tell(unit, Decision.ROLLBACK)

    def hear_out(self) -> None:
        """Find out if a one-phase commit whose answer was lost succeeded: then it is no longer part of the flow."""
        if not self._two_phase:
            unit = self._begun(journal=False, settling=False)  # called by the process that ends the flow
            if unit is not None:
                self._was_committed(unit, unit.row.attempt)

    def _begun(self, *, journal: bool, settling: bool = True) -> LaneUnit | None:
        """Return the contents of the open unit; if its journal is to be executed, name the branch for it."""
        with self._kernel.announce.around(facts.Naming, self._life.txid), self._kernel.store.ledgers.open() as ledger:
            found, flows = entered(ledger, self._life), ledger.flows
            unit = self._unit(flows, found.steps, settling=settling)
            if unit is None:
                return None
            if settling:
                require_joined(found.life)
            if not journal or not unit.statements:
                return unit
            row, txid = unit.row, self._life.txid
            if row.branch is not None and self._two_phase:
                flows.settle(txid, [(row.branch, row.attempt)], Decision.ROLLBACK)
            number = flows.name(txid, self._recorded.id, row.attempt + 1, aux=True, number=row.branch)
            row = row._replace(branch=number, attempt=row.attempt + 1)
            flows.put(txid, row)
            return unit._replace(row=row)

    def _unit(self, flows: FlowLedger, steps: Sequence[Step], *, settling: bool) -> LaneUnit | None:
        txid, name = self._life.txid, self._participant.name
        row = open_unit(flows.units(txid), name)
        if row is None:
            return None
        last = last_attempts(steps)
        mine = [each for each in last if each.lane and (each.resource, each.unit) == row.place]
        under_way = [each.name for each in mine if each.state is StepState.STARTED]
        if under_way and settling:
            raise errors.StepsOpen(txid, f"the open unit of lane {name!r}", under_way)
        statements = [each for each in flows.journal(txid) if (each.resource, each.unit) == row.place]
        everywhere = [each for each in last if each.holds_locks and each.resource == name]
        held = [each for each in mine if each.branch is not None and each.state is StepState.DONE]
        return LaneUnit(row, held, statements, everywhere)

    def _commit_journal(self, unit: LaneUnit) -> None:
        """Execute the journal and commit it with the unit: by its vote, or in one phase with its evidence."""
        txid, name, number, attempt = self._life.txid, self._participant.name, unit.row.branch or 0, unit.row.attempt
        if self._two_phase:
            free(self._kernel, txid, self._participant, [(number, earlier) for earlier in range(1, attempt)])
        work, branch = Work(txid, self._kernel.announce), self._id(number, attempt)
        held = held_by(branch.transaction, unit.everywhere)
        work.add(name, BranchPart(branch, self._participant, aux=True, held=held))
        try:
            work.do(name, unit.statements)
            if self._two_phase:
                vote = work.prepare()[name]
            elif (failure := committed_alone(work, name)) is None:
                vote = Vote.PREPARED
            else:
                raise failure
        except (errors.VotedNo, errors.OwnLock):
            work.finish(Decision.ROLLBACK)
            self._tell(unit, Decision.ROLLBACK)
            raise
        finally:
            work.leave()  # what is prepared is finished by its name, like the unit's other branches
        self._tell(unit, Decision.COMMIT, vote=vote, evident=not self._two_phase)

    def _was_committed(self, unit: LaneUnit, last: int) -> bool:
        """Find out whether an attempt committed in one phase, and make sure that none does later."""
        row = unit.row
        if row.branch is None or self._two_phase:
            return False
        for attempt in range(1, last + 1):
            with self._kernel.announce.around(facts.Fencing, self._life.txid, about=self._participant.name):
                found = self._participant.fence(self._id(row.branch, attempt))
            if found is Finish.COMMITTED:
                earlier = unit._replace(row=row._replace(attempt=attempt))
                self._tell(earlier, Decision.COMMIT, vote=Vote.PREPARED, evident=True)
                return True
        return False

    def _tell(self, unit: LaneUnit, decision: Decision, *, vote: Vote | None = None, evident: bool = False) -> None:
        """Write the unit's own decision, or what its evidence shows, then notify the resource."""
        named = patiently(lambda: self._decided(unit, decision, vote, evident=evident))
        away: errors.TxSagaError | None = None
        notes = []
        for number, attempt in named:
            branch = self._id(number, attempt)
            try:
                with self._kernel.announce.around(facts.Finishing, self._life.txid, about=self._participant.name):
                    found = self._participant.finish(branch, decision)
                notes.append(noted(self._life.txid, branch, decision, found, self._participant))
            except errors.TxSagaError as reason:
                away = reason
        self._kernel.notes.add(notes)
        if away is not None and decision is Decision.COMMIT:
            raise errors.Unfinished(self._life.txid, [self._participant.name]) from away

    def _decided(
        self, unit: LaneUnit, decision: Decision, vote: Vote | None, *, evident: bool
    ) -> Sequence[NamedBranch]:
        txid, row = self._life.txid, unit.row
        named = [(each.branch or 0, each.attempt) for each in unit.held]
        journal = None if vote is None or row.branch is None else (row.branch, row.attempt)
        if journal is not None:
            named.append(journal)
        with self._kernel.announce.around(facts.Settling, txid, about=self._participant.name):
            with self._kernel.store.ledgers.open() as ledger:
                current, flows = entered(ledger, self._life).life, ledger.flows
                if not evident:
                    require_joined(current)  # the process that ends the flow has taken the open unit
                known = next(each for each in flows.units(txid) if each.place == row.place)
                if known.decision is decision:
                    return named
                if known.decision is not None:
                    raise errors.TransactionError(
                        f"unit {row.number} of lane {row.resource!r} was settled the other way"
                    )
                if journal is not None and known.attempt != row.attempt and self._two_phase:
                    raise errors.Superseded(txid)
                if journal is not None and vote is not None:
                    flows.hold(txid, journal, vote)
                flows.settle(txid, named, decision)
                if row.branch is not None and decision is Decision.ROLLBACK:
                    flows.settle(txid, [(row.branch, attempt) for attempt in range(1, row.attempt + 1)], decision)
                flows.put(txid, row._replace(decision=decision))
        return named

    def _id(self, number: int, attempt: int) -> BranchId:
        return BranchId(self._kernel.store.registry.identity.transaction(self._life.txid), number, attempt)
