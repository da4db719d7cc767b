"""
The end of a flow: its journals are executed and prepared, its held branches asked, and all decided in one commit.

It is the end of a coordinated transaction, begun by raising the owner: the flow takes no more steps, and an earlier
process that was ending it can't decide it any more. What that one prepared of the journals is decided ROLLBACK in the
same commit, and the journals are executed again. If this process dies, the flow stays as it is until another process
ends it, or its lease expires.

The steps of a flow that was rolled back are undone as a saga's: in the process that ended it, else in the role (R6).
The compensation of each was written before it ran.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Doubt, Group, Row, TxRecord
from txsaga.errors import (
    AlreadyCommitted,
    CompensationFailed,
    ConfigError,
    DecidedOtherwise,
    FlowUnknown,
    NotCompensated,
    OwnLock,
    ProtocolError,
    RetryLater,
    RolledBack,
    StepsOpen,
    Superseded,
    TxSagaError,
)
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, BranchState, Finish, Vote
from txsaga.flows.calls import BranchVote, DecisionRequest, Settle
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.owner import BlockOwner
from txsaga.flows.saga_driver import SagaDriver
from txsaga.flows.saga_step import patience
from txsaga.flows.saga_values import ClaimedSaga
from txsaga.flows.self_deadlock import StepDeadlockDetector
from txsaga.flows.step_attempts import close_failed
from txsaga.flows.step_records import (
    HOME,
    MAIN,
    FlowStep,
    FlowStepState,
    FlowUnit,
    Journalled,
    last_attempts,
)
from txsaga.flows.work import BranchPart
from txsaga.messages.decide import DecidedBy
from txsaga.messages.effects import PreparedEffects
from txsaga.resources.participant import EnlistedBranch, Journals, Participant, Waiting

if TYPE_CHECKING:
    from txsaga.flows.flows_store import FlowLedger
    from txsaga.messages.ledger_store import Ledger

logger = logging.getLogger("txsaga")

LOOK = 0.2
"""Seconds between two polls whether another driver has finished."""


class HeldBranch:
    """A prepared branch that has no session here."""

    def __init__(self, participant: Participant, branch: BranchId, step: str) -> None:
        self._participant, self._branch, self._step = participant, branch, step

    @property
    def handle(self) -> object:
        """Refuse: its work is over."""
        raise ProtocolError(f"the work of step {self._step!r} is over; it can only be committed or rolled back")

    def prepare(self) -> Callable[[], Vote]:
        """Check whether its resource still holds it."""
        return self._look

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision."""
        return lambda: self._participant.finish(self._branch, decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: it is past one-phase commit."""
        raise ProtocolError(f"branch {self._branch.gid} is prepared; it waits for a decision")

    def leave(self) -> None:
        """Leave it prepared."""

    def _look(self) -> Vote:
        if self._branch not in self._participant.prepared(self._branch.store):
            raise RolledBack(
                f"what step {self._step!r} prepared as {self._branch.gid} is gone from {self._participant.name!r}: "
                "somebody finished it by hand"
            )
        return Vote.PREPARED


def do_journal(
    participant: Participant,
    session: EnlistedBranch,
    branch: BranchId,
    statements: Sequence[Journalled],
    held: Sequence[FlowStep],
) -> None:
    """Execute statements in an open branch; `held` are the steps of the flow that are held prepared there."""
    if not isinstance(participant, Journals):
        raise ConfigError(f"{participant.name!r} takes no statements; its journal can't be done")
    waits = (
        participant.waits(session, branch, [step.mark for step in held]) if isinstance(participant, Waiting) else None
    )
    with StepDeadlockDetector(waits) as watch:
        try:
            participant.do(session, statements)
        except Exception as error:
            if watch.found is None:
                raise
            raise _own_lock(participant.name, watch.found, held, branch.transaction) from error


def _own_lock(resource: str, holder: str, held: Sequence[FlowStep], transaction: str) -> OwnLock:
    for step in held:
        if holder in (step.mark, BranchId(transaction, step.branch or 0, step.attempt).gid):
            holder = f"step {step.name!r}"
    return OwnLock("the journal", resource, holder)


DIED = "its process died in it, and its failure was dealt with"
CLOSED = (TxState.SEALED, TxState.PREPARED, TxState.PARKED)


class Run(NamedTuple):
    """A journal that is executed at the end, and its branch."""

    key: str
    unit: FlowUnit
    statements: Sequence[Journalled]


class FlowOwner(BlockOwner):
    """The owner that ends a flow, whose steps' branches exist already."""

    def __init__(
        self, kernel: Kernel, group: Group, life: TxRecord, *, handled: Collection[str], journals: bool
    ) -> None:
        super().__init__(kernel, group, (), key=life.key, run=life.run)
        self._flow, self._polled = life, True  # any process may have opened ballots
        self._handled, self._journals = handled, journals
        self.runs: list[Run] = []
        self.held: Sequence[FlowStep] = ()
        self.home_work = False

    def enter(self) -> None:
        """Raise the owner, and name the branches of journals before their work (R9)."""
        txid, kernel = self._flow.txid, self._kernel
        self._settle_ended()
        with kernel.announce.around(facts.Naming, txid), kernel.store.ledgers.open() as ledger:
            self._require_open(ledger)
            flows = ledger.flows
            last = last_attempts(flows.steps(txid))
            dead = self._given_up(flows, last) if self._journals else []
            units = [each for each in flows.units(txid) if each.decision is None]
            self._own(flows.take_over(txid))
            earlier = [each for each in units if each.branch is not None]
            flows.settle(txid, [(each.branch or 0, each.attempt) for each in earlier], Decision.ROLLBACK)
            runs = list(self._journals_named(flows, units)) if self._journals else []
        self.held = [each for each in last if each.holds_locks]
        self._take_held(units)
        for unit, statements in runs:
            self._take_run(unit, statements)
        self._free([*earlier, *dead])
        kernel.running.begin(self, Doubt.of(self.life))

    def has_effects(self) -> bool:
        """Return whether its decision would write rows or tables, which may be refused."""
        with self._kernel.store.ledgers.open() as ledger:
            return bool(ledger.effects(self._flow.txid))

    def decide(
        self, decision: Decision, why: str, rows: Sequence[Row] = (), votes: Sequence[BranchVote] = ()
    ) -> Decision:
        """Write the decision with its home effects (R2); return the final one."""
        self._kernel.tell_hooks(self._group, self.life, decision, why)
        with self._none_left_behind():
            return self._decide_with_effects(
                DecisionRequest(self.life, decision, f"owner {self.life.owner}", why, rows, votes)
            )

    def _applied(self, word: DecisionRequest, ready: PreparedEffects) -> tuple[Decision, bool]:
        assert word.decision is not None
        life, by = self.life, DecidedBy(who=word.who, why=word.why, owner=self.life.owner)
        with self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.owner != life.owner:
                if word.decision is Decision.ROLLBACK and ledger.standing(life.txid) is Decision.ROLLBACK:
                    return Decision.ROLLBACK, False  # its answer was lost, and an engine is already undoing it
                raise Superseded(life.txid)
            if current is not None and current.state is TxState.ACTIVE and word.decision is Decision.COMMIT:
                self._end(ledger, word)
            try:
                standing = self._kernel.decider.within(ledger, life.txid, word.decision, by, ready=ready)
                return standing.decision, standing.won
            except DecidedOtherwise as stands:
                return Decision[stands.standing], False

    def _require_open(self, ledger: Ledger) -> None:
        txid = self._flow.txid
        current = ledger.lock(txid)
        if current is None or current.token != self._flow.token:
            raise FlowUnknown(f"transaction {txid} is not in this store")
        standing = ledger.standing(txid)
        if standing is Decision.COMMIT:
            raise AlreadyCommitted(txid, self._flow.key or "")
        if standing is not None:
            raise DecidedOtherwise(txid, standing.name)

    def _settle_ended(self) -> None:
        """Find out the outcome of a flow that was sealed before a last resource committed."""
        with self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(self._flow.txid)
        if current is not None and current.state in CLOSED:
            self._lives.settle_first(current, self._flow.key or "")

    def _given_up(self, flows: FlowLedger, last: Sequence[FlowStep]) -> list[FlowStep]:
        """Require that all steps are done or handled; those whose process died are marked failed."""
        undone = [each.name for each in last if each.state is not FlowStepState.DONE and each.name not in self._handled]
        if undone:
            raise StepsOpen(self._flow.txid, "the flow", undone)
        if unknown := sorted(set(self._handled) - {each.name for each in last}):
            raise ConfigError(f"flow {self._flow.txid} has no step {', '.join(map(repr, unknown))}")
        dead = [each for each in last if each.state is FlowStepState.STARTED]
        for step in dead:
            close_failed(flows, self._flow.txid, step, DIED)
        return [each for each in dead if each.branch is not None]

    def _journals_named(
        self, flows: FlowLedger, units: Sequence[FlowUnit]
    ) -> Iterator[tuple[FlowUnit, Sequence[Journalled]]]:
        """Name a branch for each waiting journal: the main one of a resource, the open unit of a lane."""
        txid, journal = self._flow.txid, flows.journal(self._flow.txid)
        self.home_work = any(each.resource == HOME for each in journal)
        known = {(each.resource, each.number): each for each in units}
        for place in dict.fromkeys((each.resource, each.unit) for each in journal if each.resource != HOME):
            unit = known.get(place)
            if unit is None and place[1] != MAIN:
                continue  # a unit that its lane already settled
            unit = unit or FlowUnit(*place)
            recorded, _ = self._kernel.participant(unit.resource)
            named = flows.name(txid, recorded.id, self.life.owner, aux=unit.number != MAIN, number=unit.branch)
            unit = unit._replace(branch=named, attempt=self.life.owner)
            flows.put(txid, unit)
            yield unit, [each for each in journal if (each.resource, each.unit) == place]

    def _take_held(self, units: Sequence[FlowUnit]) -> None:
        """Add the branches that steps left prepared; a lane unit with its own decision is not the flow's."""
        states = {(b.number, b.attempt): b.state for b in self._kernel.store.branches.of(self._flow.txid)}
        open_ = {(each.resource, each.number) for each in units}
        for step in self.held:
            assert step.branch is not None and step.resource is not None
            if states[step.branch, step.attempt] is not BranchState.ENDED:
                continue
            if step.lane and (step.resource, step.unit) not in open_:
                continue
            _, participant = self._kernel.participant(step.resource)
            branch = self._branch(step.branch, step.attempt)
            session = HeldBranch(participant, branch, step.name)
            part = BranchPart(branch, participant, aux=step.lane, session=session, used=True, asked=True)
            self.work.add(f"step {step.name}", part)

    def _take_run(self, unit: FlowUnit, statements: Sequence[Journalled]) -> None:
        assert unit.branch is not None
        _, participant = self._kernel.participant(unit.resource)
        key = unit.resource if unit.number == MAIN else f"{unit.resource} unit {unit.number}"
        branch = self._branch(unit.branch, unit.attempt)
        self.work.add(key, BranchPart(branch, participant, aux=unit.number != MAIN))
        self.runs.append(Run(key, unit, statements))

    def _free(self, earlier: Sequence[FlowUnit | FlowStep]) -> None:
        """Roll back what dead processes prepared, in journals and steps: its locks would block the journals."""
        for each in earlier:
            participant: Participant = self._kernel.reach(each.resource or "")
            branch = self._branch(each.branch or 0, each.attempt)
            try:
                with self._kernel.announce.around(facts.Finishing, self._flow.txid, about=participant.name):
                    participant.finish(branch, Decision.ROLLBACK)
            except RetryLater:
                continue
            self._kernel.notes.add([noted(self._flow.txid, branch, Decision.ROLLBACK, Finish.DONE)])

    def _branch(self, number: int, attempt: int) -> BranchId:
        transaction = self._kernel.store.registry.identity.transaction(self._flow.txid)
        return BranchId(transaction, number, attempt)


class FlowEnding(Coordinated):
    """The end of a flow, as a block: leaving it decides."""

    def __init__(
        self, kernel: Kernel, group: Group, life: TxRecord, *, handled: Collection[str] = (), journals: bool = True
    ) -> None:
        owner = FlowOwner(kernel, group, life, handled=handled, journals=journals)
        super().__init__(kernel, group, (), key=None, owner=owner)
        self._flow_owner, self._bound = owner, True  # never one-phase: other processes may have voted

    @property
    def life(self) -> TxRecord:
        """The flow's record under its last owner."""
        return self._flow_owner.life

    def do_journals(self) -> None:
        """Execute the journals, each resource in one transaction."""
        owner = self._flow_owner
        for run in owner.runs:
            owner.work.handle(run.key)
            part = owner.work.part(run.key)
            assert part.session is not None
            held = [each for each in owner.held if each.resource == run.unit.resource]
            do_journal(part.participant, part.session, part.branch, run.statements, held)
        if owner.work.last(alone=False) is not None and (owner.home_work or owner.has_effects()):
            raise ConfigError(
                "rows and tables of the home database can't be written beside a resource whose commit is the decision "
                "(R12); "
                "leave one of them to a flow of its own"
            )

    def give_up(self, why: str) -> None:
        """Roll back."""
        self._roll_back(why)


def undo(kernel: Kernel, life: TxRecord) -> None:
    """Undo completely a flow that this owner rolled back; `NotCompensated` if another process has to go on."""
    if not any(step.waits for step in kernel.store.steps.of(life.txid)):
        return
    word = DecisionRequest(life, Decision.ROLLBACK, f"owner {life.owner}", "")
    try:
        kernel.steps.call(Settle(word, kernel.member))
    except Superseded:
        wait_until_undone(kernel, life.txid)
        return
    _drive(kernel, ClaimedSaga(life.txid, life.group, life.owner, Decision.ROLLBACK, life.key))


def undo_after(kernel: Kernel, life: TxRecord, error: BaseException) -> None:
    """Undo a flow, and add what is left of it as a note to an error that is raised anyway."""
    try:
        undo(kernel, life)
    except TxSagaError as left:
        error.add_note(str(left))
        logger.warning("flow %d is not undone to its end: %s", life.txid, left, extra={"txid": life.txid})


def wait_until_undone(kernel: Kernel, txid: int) -> None:
    """Wait until a flow that was rolled back is undone, taking over if its driver is gone."""
    wait = patience()
    while True:
        with kernel.store.ledgers.open() as ledger:
            if not ledger.compensates(txid):
                return
        with kernel.announce.around(facts.Claiming, txid):
            taken = kernel.store.steps.claim(kernel.member, limit=1, txid=txid)
        for saga in taken:
            _drive(kernel, saga)
        if not taken:
            _require_driven(kernel, txid)
            if not wait(LOOK):
                raise NotCompensated(txid, "another process undoes it")


def _drive(kernel: Kernel, saga: ClaimedSaga) -> None:
    SagaDriver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))


def _require_driven(kernel: Kernel, txid: int) -> None:
    for view in kernel.store.steps.listed(txid=txid):
        if view.stalled:
            raise CompensationFailed(txid, f"{view.why}; resume or skip it with `txsaga saga`")
