"""
The rows of flows: the resources that they may work in, their steps, the units of their lanes, their journals.

`FlowLedger` works inside an open ledger and changes one flow, which that ledger has locked; it holds no rules. `Flows`
only looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from txsaga.model.amendment import Amendment
from txsaga.model.branch import BranchId, Vote
from txsaga.model.decision import Decision
from txsaga.model.flow_step import Enrolled, FlowStep, FlowUnit, HeldLocks, Journalled, Overdue
from txsaga.model.records import Life
from txsaga.model.step import Left, StepEvent
from txsaga.ports.participants import Enlisted
from txsaga.ports.steps import Start

Named = tuple[int, int]
"""A branch by its number and attempt."""


class Entered(NamedTuple):
    """A flow with all that an attempt of a step has to know of it."""

    life: Life
    standing: Decision | None
    amendment: Amendment | None
    enrolled: Sequence[Enrolled]
    steps: Sequence[FlowStep]


class FlowLedger(Protocol):
    """The rows of one locked flow inside one open database transaction."""

    def look(self, txid: int) -> Entered | None:
        """Return a flow as it is, without a lock."""

    def enter(self, txid: int) -> Entered | None:
        """Lock a flow as `Ledger.lock` does, and return it; where it is open, show that somebody is at work in it."""

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Keep what a flow may work in."""

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in, by name."""

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Keep why a life was begun, and what it amends; said again, the last word counts."""

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a life was begun, where that was said."""

    def steps(self, txid: int, name: str | None = None) -> Sequence[FlowStep]:
        """Return every attempt of every step, or of one, in order."""

    def start(self, txid: int, step: FlowStep) -> None:
        """Write a new attempt down; what the one before it left in the journal goes."""

    def close(self, txid: int, step: FlowStep) -> None:
        """Write down how an attempt ended."""

    def finish(self, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None) -> None:
        """Write down that an attempt is done, what it leaves in the journal, and what was declared of it, at once."""

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps, in the order of the steps."""

    def units(self, txid: int) -> Sequence[FlowUnit]:
        """Return the units of all lanes, and of main work that was run from the journal."""

    def put(self, txid: int, unit: FlowUnit) -> None:
        """Keep a unit as it is now."""

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch, of a new one or of that number; return its number."""

    def hold(self, txid: int, branch: Named, vote: Vote) -> None:
        """Note that the work of a branch is over, and what it voted."""

    def settle(self, txid: int, branches: Sequence[Named], decision: Decision) -> None:
        """Decide branches by themselves, whatever becomes of the flow; what is over stays as it is."""

    def declare(self, txid: int, step: Start, attempt: int) -> None:
        """Write down what undoes a step, before an attempt of it runs: it is found once ROLLBACK stands.

        What an attempt before it said gives way.
        """

    def mark(self, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        """Write down what became of a step that was declared; nothing moves but by its lifecycle."""

    def let_stand(self, txid: int) -> None:
        """Have nobody see to the steps of a flow any more: what they did stays."""

    def take_over(self, txid: int) -> Life:
        """Raise the owner: from here on only this one ends the flow, and steps can't be added.

        Once ROLLBACK stands, its steps are left to this owner for a time.
        """

    def do_home_work(self, txid: int) -> None:
        """Do what is journalled for the home database, in this very transaction.

        `EffectConflict` when a statement can't be done, or changes another number of rows.
        """

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long; False when that was noted."""


class Flows(Protocol):
    """What undecided flows hold."""

    def held(self) -> Sequence[HeldLocks]:
        """Tell what is held in each resource, by name."""

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget and were not told of."""


@runtime_checkable
class Journals(Protocol):
    """A participant in which journalled statements can be done."""

    def do(self, session: Enlisted, statements: Sequence[Journalled]) -> None:
        """Do statements in an open branch; `RowsDiffer`, or another no, where one can't be done as recorded."""


class Waits(Protocol):
    """An eye on one session of a step, from another thread."""

    def own_blocker(self) -> str | None:
        """Return the branch of its own transaction that the session waits for, directly or behind others."""

    def interrupt(self) -> None:
        """Cancel what the session waits with."""

    def close(self) -> None:
        """Give back what was opened to look."""


@runtime_checkable
class Waiting(Protocol):
    """A participant in which a step may wait for what its own flow holds prepared."""

    def waits(self, session: Enlisted, branch: BranchId, marks: Sequence[str]) -> Waits:
        """Keep an eye on a session; `marks` are what `mark` said of what the flow holds there."""

    def mark(self, session: Enlisted) -> str:
        """Return how the server calls what this session does, where it does not know the branch by its name."""
