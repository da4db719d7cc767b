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

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from txsaga import errors
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Group, TxRecord
from txsaga.flows.branch import BranchId, BranchState, Finish, Vote
from txsaga.flows.enlisted import BranchBlock, Enlisted
from txsaga.flows.flow_begin import entered
from txsaga.flows.journal import Journalled
from txsaga.flows.owner import Owner
from txsaga.flows.requests import Entered
from txsaga.flows.step import HOME, MAIN, Step, StepState, Unit, last_attempts
from txsaga.flows.step_attempts import close_failed, free
from txsaga.flows.work import BranchPart
from txsaga.resources.participant import Participant

if TYPE_CHECKING:
    from txsaga.flows.flows_store import FlowLedger
    from txsaga.messages.ledger_store import Ledger


DIED = "its process died in it, and its failure was dealt with"
CLOSED = (TxState.SEALED, TxState.PREPARED, TxState.PARKED)


class HeldBranch:
    """A branch that a step left prepared: it has no session here."""

    def __init__(self, participant: Participant, branch: BranchId, step: str) -> None:
        self._participant, self._branch, self._step = participant, branch, step

    @property
    def handle(self) -> object:
        """Refuse: its work is over."""
        raise errors.ProtocolError(f"the work of step {self._step!r} is done; it can only be committed or rolled back")

    def prepare(self) -> Callable[[], Vote]:
        """Check whether its resource still holds it."""
        return self._look

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Carry out the decision."""
        return lambda: self._participant.finish(self._branch, decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse: it is past one-phase commit."""
        raise errors.ProtocolError(f"branch {self._branch.gid} is prepared; it waits for a decision")

    def leave(self) -> None:
        """Leave it prepared."""

    def _look(self) -> Vote:
        if self._branch not in self._participant.prepared(self._branch.store):
            raise errors.RolledBack(
                f"branch {self._branch.gid} of step {self._step!r} is no longer in {self._participant.name!r}: it was "
                "finished outside txsaga"
            )
        return Vote.PREPARED


class FlowEnding(BranchBlock):
    """The end of a flow, as a block: entering it takes the flow over, leaving it decides."""

    def __init__(
        self, kernel: Kernel, group: Group, life: TxRecord, *, handled: Collection[str] = (), journals: bool = True
    ) -> None:
        owner = Owner(kernel, group, key=life.key, run=life.run)
        super().__init__(kernel, owner, Enlisted(kernel, owner))
        owner.polled = owner.with_effects = True  # any process may have called ballots, left effects, or voted
        self._flow, self._handled, self._journals = life, handled, journals
        self._runs: dict[str, Sequence[Journalled]] = {}  # the journals that are executed, by their branch
        self._held: Sequence[Step] = ()
        self._home_work = False

    @property
    def life(self) -> TxRecord:
        """The flow's record under its last owner."""
        return self._owner.life

    def do_journals(self) -> None:
        """Execute the journals, each resource in one transaction."""
        work = self._branches.work
        for key, statements in self._runs.items():
            work.do(key, statements)
        if work.last(alone=False) is None:
            return
        with self._kernel.store.ledgers.open() as ledger:
            effects = ledger.effects(self._flow.txid)
        if self._home_work or effects:
            raise errors.ConfigError(
                "rows and tables of the home database can't be written together with a resource that can't "
                "vote; use a separate flow for one of them"
            )

    def give_up(self, why: str) -> None:
        """Roll back."""
        self._roll_back(why)

    def _enter(self) -> None:
        try:
            self._take_over()
        except errors.TransactionClosed:
            self._settle_closed()
            self._take_over()
        self._owner.hold(self._branches)

    def _take_over(self) -> None:
        """Take the flow over, and name the branches of journals before their work (R9)."""
        txid, kernel = self._flow.txid, self._kernel
        with kernel.announce.around(facts.Naming, txid), kernel.store.ledgers.open() as ledger:
            found, flows = self._entered(ledger), ledger.flows
            last = last_attempts(found.steps)
            dead = self._given_up(flows, last) if self._journals else []
            units = [each for each in flows.units(txid) if each.decision is None]
            life = flows.take_over(found.life)
            earlier = [each for each in units if each.branch is not None]
            flows.settle(txid, [(each.branch or 0, each.attempt) for each in earlier], Decision.ROLLBACK)
            runs = list(self._journals_named(flows, units, life.owner)) if self._journals else []
        self._owner.own(life)
        self._branches.open()
        self._held = [each for each in last if each.holds_locks]
        if self._held:
            self._take_held(units)
        for unit, statements in runs:
            self._take_run(unit, statements)
        stale: list[Unit | Step] = [*earlier, *dead]
        for each in stale:
            participant = kernel.reach(each.resource or "")
            free(kernel, txid, participant, [(each.branch or 0, each.attempt)])

    def _entered(self, ledger: Ledger) -> Entered:
        try:
            return entered(ledger, self._flow)
        except errors.DecidedOtherwise as decided:
            if decided.standing == Decision.COMMIT.name:
                raise errors.AlreadyCommitted(self._flow.txid, self._flow.key or "") from None
            raise

    def _settle_closed(self) -> None:
        """Find out the outcome of a flow that was sealed before a last resource committed."""
        with self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(self._flow.txid)
        if current is not None and current.state in CLOSED:
            self._owner.records.settle_first(current, self._flow.key or "")

    def _given_up(self, flows: FlowLedger, last: Sequence[Step]) -> list[Step]:
        """Require that all steps are done or handled; those whose process died are marked failed."""
        undone = [each.name for each in last if each.state is not StepState.DONE and each.name not in self._handled]
        if undone:
            raise errors.StepsOpen(self._flow.txid, "the flow", undone)
        if unknown := sorted(set(self._handled) - {each.name for each in last}):
            raise errors.ConfigError(f"flow {self._flow.txid} has no step {', '.join(map(repr, unknown))}")
        dead = [each for each in last if each.state is StepState.STARTED]
        for step in dead:
            close_failed(flows, step, DIED)
        return [each for each in dead if each.branch is not None]

    def _journals_named(
        self, flows: FlowLedger, units: Sequence[Unit], owner: int
    ) -> Iterator[tuple[Unit, Sequence[Journalled]]]:
        """Name a branch for each waiting journal: the main one of a resource, the open unit of a lane."""
        txid, journal = self._flow.txid, flows.journal(self._flow.txid)
        self._home_work = any(each.resource == HOME for each in journal)
        known = {(each.resource, each.number): each for each in units}
        for place in dict.fromkeys((each.resource, each.unit) for each in journal if each.resource != HOME):
            unit = known.get(place)
            if unit is None and place[1] != MAIN:
                continue  # a unit that its lane already settled
            unit = unit or Unit(*place)
            recorded, _ = self._kernel.participant(unit.resource)
            named = flows.name(txid, recorded.id, owner, aux=unit.number != MAIN, number=unit.branch)
            unit = unit._replace(branch=named, attempt=owner)
            flows.put(txid, unit)
            yield unit, [each for each in journal if (each.resource, each.unit) == place]

    def _take_held(self, units: Sequence[Unit]) -> None:
        """Add the branches that steps left prepared; a lane unit with its own decision is not the flow's."""
        states = {(b.number, b.attempt): b.state for b in self._kernel.store.work.branches(self._flow.txid)}
        open_ = {(each.resource, each.number) for each in units}
        for step in self._held:
            assert step.branch is not None and step.resource is not None
            if states[step.branch, step.attempt] is not BranchState.ENDED:
                continue
            if step.lane and (step.resource, step.unit) not in open_:
                continue
            _, participant = self._kernel.participant(step.resource)
            branch = self._branches.id(step.branch, step.attempt)
            session = HeldBranch(participant, branch, step.name)
            part = BranchPart(branch, participant, aux=step.lane, session=session, used=True, asked=True)
            self._branches.work.add(f"step {step.name}", part)

    def _take_run(self, unit: Unit, statements: Sequence[Journalled]) -> None:
        assert unit.branch is not None
        _, participant = self._kernel.participant(unit.resource)
        key = unit.resource if unit.number == MAIN else f"{unit.resource} unit {unit.number}"
        held = [each for each in self._held if each.resource == unit.resource]
        self._branches.add(key, participant, unit.branch, aux=unit.number != MAIN, held=held)
        self._runs[key] = statements
