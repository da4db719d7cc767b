"""Flows in memory: the rows of one flow inside an open block, and what all of them hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.oracle import step_moves
from tests.oracle.home import Home
from tests.oracle.rows import BranchRow, Kept, Opened, SagaRow
from txsaga.checkback.profile import LEASE
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import EffectConflict, TransactionClosed
from txsaga.flows.branch import BRANCH, BranchEvent, BranchState, Vote
from txsaga.flows.calls import Entered, Mark, NamedBranch, Start
from txsaga.flows.flows_store import FlowLedger, Flows
from txsaga.flows.step import STEP, Left, StepEvent
from txsaga.flows.step_records import HOME, Amendment, Enrolled, FlowStep, FlowUnit, HeldLocks, Journalled, Overdue

OPEN = BRANCH.sources(BranchEvent.ROLL_BACK)
LEFT = {Vote.PREPARED: BranchState.ENDED, Vote.READ_ONLY: BranchState.COMMITTED}


class MemoryFlowLedger(FlowLedger):
    """The rows of one flow inside one open block."""

    def __init__(self, home: Home, kept: Kept, touch: Callable[[int], None]) -> None:
        self._home, self._kept, self._touch = home, kept, touch

    def look(self, txid: int) -> Entered | None:
        """Return a flow as it is."""
        opened, op = self._kept.lives.get(txid), self._kept.ops.get(txid)
        if opened is None:
            return None
        decision = None if op is None else op.decision
        return Entered(opened.life, decision, self.amendment(txid), self.enrolled(txid), self.steps(txid))

    def enter(self, txid: int) -> Entered | None:
        """Show that somebody is at work in it; the lock is held all the while."""
        found = self.look(txid)
        if found is not None and found.life.state is TxState.ACTIVE:
            self._touch(txid)
        return found

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Keep what a flow may work in."""
        self._kept.enrolled[txid] = tuple(sorted(enrolled))

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in."""
        return self._kept.enrolled.get(txid, ())

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Keep why a life was begun."""
        self._kept.amendments[txid] = amendment

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a life was begun."""
        return self._kept.amendments.get(txid)

    def steps(self, txid: int, name: str | None = None) -> Sequence[FlowStep]:
        """Return every attempt of every step, or of one."""
        return [step for step in steps_of(self._kept, txid) if name in (None, step.name)]

    def start(self, txid: int, step: FlowStep) -> None:
        """Write a new attempt down."""
        self._kept.flow_steps[txid, step.number, step.attempt] = step._replace(started=self._home.now())
        for place in [place for place in self._kept.journal if place[:2] == (txid, step.number)]:
            del self._kept.journal[place]

    def close(self, txid: int, step: FlowStep) -> None:
        """Write down how an attempt ended."""
        place = (txid, step.number, step.attempt)
        known = self._kept.flow_steps[place]
        self._kept.flow_steps[place] = known._replace(
            ended=self._home.now(), state=step.state, mark=step.mark, why=step.why, branch=step.branch
        )

    def finish(self, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None) -> None:
        """Write down that an attempt is done."""
        self._kept.journal |= {(txid, each.step, each.seq): each for each in journal}
        self.close(txid, step)
        self.mark(txid, step.number, StepEvent.FINISH, Left.WORK, output, "")

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps."""
        return [each for place, each in sorted(self._kept.journal.items()) if place[0] == txid]

    def units(self, txid: int) -> Sequence[FlowUnit]:
        """Return the units of all lanes."""
        return units_of(self._kept, txid)

    def put(self, txid: int, unit: FlowUnit) -> None:
        """Keep a unit as it is now."""
        self._kept.units[txid, unit.resource, unit.number] = unit._replace(at=self._home.now())

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch."""
        last = max((place[1] for place in self._kept.branches if place[0] == txid), default=0)
        number = last + 1 if number is None else number
        self._kept.branches[txid, number, attempt] = BranchRow(resource, BranchState.ACTIVE, self._home.now(), aux=aux)
        return number

    def hold(self, txid: int, branch: NamedBranch, vote: Vote) -> None:
        """Note that the work of a branch is over."""
        self._change_step((txid, *branch), state=LEFT[vote])

    def settle(self, txid: int, branches: Sequence[NamedBranch], decision: Decision) -> None:
        """Decide branches by themselves."""
        elected: dict[str, Any] = {"state": BranchState.PREPARED} if decision is Decision.COMMIT else {}
        for branch in branches:
            self._change_step((txid, *branch), decision=decision, **elected)

    def declare(self, txid: int, step: Start, attempt: int) -> None:
        """Write down what undoes a step."""
        place, now = (txid, step.number), self._home.now()
        known = self._kept.steps.get(place)
        if known is None or known.state in STEP.sources(StepEvent.RETRY):
            self._kept.steps[place] = step_moves.started(txid, attempt, step, now)
        self._kept.sagas.setdefault(txid, SagaRow(now + LEASE))

    def mark(self, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        """Write down what became of a step."""
        owner = self._kept.lives[txid].life.owner
        step_moves.marked(self._kept, Mark(txid, owner, number, event, left, output, error), self._home.now())

    def let_stand(self, txid: int) -> None:
        """Have nobody see to the steps of a flow any more."""
        self._kept.sagas.pop(txid, None)

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner."""
        opened = self._kept.lives[txid]
        if opened.life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {txid} is closed; nobody can end it any more")
        life = replace(opened.life, owner=opened.life.owner + 1)
        self._kept.lives[txid] = Opened(life, opened.born, self._home.now())
        if txid in self._kept.sagas:
            self._kept.sagas[txid] = SagaRow(self._home.now() + LEASE)
        return life

    def do_home_work(self, txid: int) -> None:
        """Refuse what is journalled for a database: there is none here."""
        if any(each.resource == HOME for each in self.journal(txid)):
            raise EffectConflict("a store in memory has no tables of yours")

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long."""
        step = self._kept.flow_steps[txid, number, attempt]
        self._kept.flow_steps[txid, number, attempt] = step._replace(late=True)
        return not step.late

    def _change_step(self, place: tuple[int, int, int], **values: Any) -> None:  # whatever a row holds
        row = self._kept.branches[place]
        if row.state in OPEN:
            self._kept.branches[place] = row._replace(at=self._home.now(), **values)


class MemoryFlows(Flows):
    """What undecided flows hold."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def held(self) -> Sequence[HeldLocks]:
        """Tell what is held in each resource."""
        found = [each for each, _ in self._held_steps()]
        return [
            HeldLocks(
                name,
                len(of := [each for each in found if each.resource == name]),
                sum(each.held > each.budget for each in of),
                max(each.held for each in of),
            )
            for name in sorted({each.resource for each in found})
        ]

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget."""
        return [each for each, step in self._held_steps() if not step.late and each.held > each.budget][:limit]

    def _held_steps(self) -> Iterator[tuple[Overdue, FlowStep]]:
        with self._home.lock:
            kept, now = self._home.kept, self._home.now()
            for (txid, number, attempt), step in sorted(kept.flow_steps.items()):
                row = kept.branches.get((txid, step.branch or 0, attempt))
                held = step.holds_locks and row is not None and row.state is BranchState.ENDED and row.decision is None
                budget = next((e.budget for e in kept.enrolled[txid] if e[:2] == (step.resource, step.lane)), None)
                if held and txid not in kept.ops and budget and step.ended and step.resource:
                    told = (txid, number, attempt, step.name, step.resource, step.lane)
                    yield Overdue(*told, now - step.ended, budget), step


def steps_of(kept: Kept, txid: int) -> Iterator[FlowStep]:
    """Return the attempts of the steps of a flow."""
    for place, step in sorted(kept.flow_steps.items()):
        if place[0] == txid:
            yield step._replace(statements=sum(key[:2] == place[:2] for key in kept.journal) if step.ended else 0)


def units_of(kept: Kept, txid: int) -> list[FlowUnit]:
    """Return the units of a flow."""
    return [unit for place, unit in sorted(kept.units.items()) if place[0] == txid]
