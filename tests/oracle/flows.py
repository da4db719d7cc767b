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
from txsaga.flows.flows_store import FlowLedger, Flows
from txsaga.flows.journal import JournalEntry, Journalled
from txsaga.flows.requests import Entered, NamedBranch
from txsaga.flows.step import HOME, Amendment, Enrolled, HeldLocks, Overdue, Step, Unit

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

    def steps(self, txid: int, name: str | None = None) -> Sequence[Step]:
        """Return every attempt of every step, or of one."""
        return [step for step in steps_of(self._kept, txid) if name in (None, step.name)]

    def start(self, step: Step) -> None:
        """Write a new attempt down; what undoes its step moves on to it."""
        now, known = self._home.now(), step_moves.declared(self._kept, step.txid, step.number)
        if known is not None:
            self._kept.steps[known[:3]] = known._replace(kind=None, input="{}", compensation=None)
        for place in [place for place in self._kept.journal if place[:2] == step[:2]]:
            del self._kept.journal[place]
            self._kept.steps[place] = self._kept.steps[place]._replace(statements=0)
        if step.kind is None and known is not None:
            step = step._replace(kind=known.kind, input=known.input, compensation=known.compensation)
            step = step._replace(described_on=known.evidence or "")
        if step.kind is not None:
            self._kept.sagas.setdefault(step.txid, SagaRow(now + LEASE))
        self._kept.steps[step[:3]] = step._replace(started=now, at=now)

    def end(self, step: Step, entries: Sequence[JournalEntry] = ()) -> None:
        """Write down how an attempt ended."""
        known, place = self._kept.steps[step[:3]], (step.resource or HOME, step.unit)
        self._kept.steps[step[:3]] = known._replace(
            state=step.state,
            left=step.left,
            error=step.error,
            mark=step.mark,
            output=step.output,
            statements=len(entries),
            at=self._home.now(),
        )
        journalled = [Journalled(step.number, at, place[0], place[1], *each) for at, each in enumerate(entries, 1)]
        self._kept.journal[step[:3]] = tuple(journalled)

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps."""
        return [each for key, entries in sorted(self._kept.journal.items()) if key[0] == txid for each in entries]

    def units(self, txid: int) -> Sequence[Unit]:
        """Return the units of all lanes."""
        return units_of(self._kept, txid)

    def put(self, txid: int, unit: Unit) -> None:
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

    def drop_compensations(self, txid: int) -> None:
        """Have nobody see to the steps of a flow any more."""
        self._kept.sagas.pop(txid, None)

    def take_over(self, life: TxRecord) -> TxRecord:
        """Raise the owner."""
        txid = life.txid
        opened = self._kept.lives[txid]
        if opened.life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {txid} is sealed; it can't be ended again")
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
        step = self._kept.steps[txid, number, attempt]
        self._kept.steps[txid, number, attempt] = step._replace(late=True)
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

    def _held_steps(self) -> Iterator[tuple[Overdue, Step]]:
        with self._home.lock:
            kept, now = self._home.kept, self._home.now()
            for (txid, number, attempt), step in sorted(kept.steps.items()):
                row = kept.branches.get((txid, step.branch or 0, attempt))
                held = step.holds_locks and row is not None and row.state is BranchState.ENDED and row.decision is None
                enrolled = kept.enrolled.get(txid, ())
                budget = next((e.budget for e in enrolled if e[:2] == (step.resource, step.lane)), None)
                if held and txid not in kept.ops and budget and step.at and step.resource:
                    told = (txid, number, attempt, step.name, step.resource, step.lane)
                    yield Overdue(*told, now - step.at, budget), step


def steps_of(kept: Kept, txid: int) -> list[Step]:
    """Return every attempt of the steps of a transaction."""
    return [step for place, step in sorted(kept.steps.items()) if place[0] == txid]


def units_of(kept: Kept, txid: int) -> list[Unit]:
    """Return the units of a flow."""
    return [unit for place, unit in sorted(kept.units.items()) if place[0] == txid]
