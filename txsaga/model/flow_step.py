"""
The steps of a flow whose work is held until it is decided: what each attempt did, where, and how it is held.

A step is a name; each try of it is an attempt. Only the last attempt counts (R4): what an earlier one prepared is
rolled back, what it wrote into its journal is gone. Work of a lane belongs to a unit of it, main work to unit 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from txsaga.model.decision import Decision
from txsaga.model.flow import Hold
from txsaga.model.lifecycle import Lifecycle

HOME = "home"
"""The home database as a place of journalled work: its rows are part of the decision's own commit."""
MAIN = 0
"""The unit of everything that is no lane's."""
PARTS = 1_000
"""Messages of a step are a contribution of their own, behind those of blocks."""
BUDGET = timedelta(seconds=60)
LEASE = timedelta(hours=1)
"""A flow that nobody was heard of for so long is rolled back."""


class StepState(StrEnum):
    """Where one attempt of a step stands."""

    STARTED = "started"  # it works, or it died
    DONE = "done"
    FAILED = "failed"  # it raised; nothing of it is held


class StepEvent(StrEnum):
    """What moves an attempt of a step."""

    FINISH = "finish"
    FAIL = "fail"


FLOW_STEP: Lifecycle[StepState, StepEvent] = Lifecycle(
    {
        (StepState.STARTED, StepEvent.FINISH): StepState.DONE,
        (StepState.STARTED, StepEvent.FAIL): StepState.FAILED,
    }
)


class Enrolled(NamedTuple):
    """A resource that a flow may work in: in its main transaction, or in its lane."""

    resource: str
    lane: bool = False
    budget: timedelta = BUDGET  # locks of it that are held for longer are told of


class FlowStep(NamedTuple):
    """One attempt of a step."""

    number: int  # of the step, in the order in which they were started first
    name: str
    attempt: int
    state: StepState
    resource: str | None  # None: it only sends
    hold: Hold | None
    lane: bool = False
    unit: int = MAIN
    branch: int | None = None  # the number of the branch that holds it
    started: datetime | None = None
    ended: datetime | None = None
    mark: str = ""  # how the server calls the work that it holds, where it does not know our name; or an application
    why: str = ""
    late: bool = False  # it held its locks for longer than its budget, and that was told
    statements: int = 0

    @property
    def holds_locks(self) -> bool:
        """Tell whether it is done and its resource holds its locks until the decision."""
        return self.state is StepState.DONE and self.branch is not None and self.hold is Hold.PREPARED


class FlowUnit(NamedTuple):
    """A unit of a lane, or of main work: what is settled together in one resource."""

    resource: str
    number: int
    branch: int | None = None  # in which its journal is run
    attempt: int = 0  # the last one to run it
    decision: Decision | None = None  # its own; without one it follows the outcome
    at: datetime | None = None


class Journalled(NamedTuple):
    """A statement that waits in the journal of a step."""

    step: int
    seq: int
    resource: str
    unit: int
    text: str
    parameters: Mapping[str, object]
    rows: int | None = None  # None: at least one

    def agrees(self, count: int) -> bool:
        """Tell whether it changed as many rows as it was to change."""
        return count >= 1 if self.rows is None else count == self.rows


class HeldLocks(NamedTuple):
    """What undecided flows hold in one resource, and how much of it for longer than it was meant to."""

    resource: str
    held: int
    over: int
    oldest: timedelta | None


class Overdue(NamedTuple):
    """A step that holds its locks for longer than its budget."""

    txid: int
    number: int
    attempt: int
    name: str
    resource: str
    lane: bool
    held: timedelta
    budget: timedelta


def last_attempts(steps: Iterable[FlowStep]) -> Sequence[FlowStep]:
    """Return the attempt of each step that counts, in the order of the steps."""
    last: dict[int, FlowStep] = {}
    for step in sorted(steps, key=lambda each: (each.number, each.attempt)):
        last[step.number] = step
    return list(last.values())


def lane_unit(steps: Iterable[FlowStep], units: Iterable[FlowUnit], number: int) -> FlowUnit | None:
    """Return the unit that the work of a step lies in, if it is done and lies in a lane."""
    step = next((each for each in last_attempts(steps) if each.number == number), None)
    if step is None or not step.lane or step.state is not StepState.DONE:
        return None
    return next((each for each in units if each[:2] == (step.resource, step.unit)), None)


def is_undone(steps: Iterable[FlowStep], units: Iterable[FlowUnit], number: int) -> bool:
    """Tell whether ROLLBACK takes the work of a step away by itself.

    All of it, but for what a lane has committed, or may have: a journal whose branch is named was begun to be done.
    """
    unit = lane_unit(steps, units, number)
    if unit is None or unit.decision is Decision.ROLLBACK:
        return True
    return unit.decision is None and unit.branch is None


def open_unit(units: Iterable[FlowUnit], resource: str) -> FlowUnit | None:
    """Return the open unit of a lane, if there is one."""
    found = (each for each in units if each.resource == resource and each.number != MAIN and each.decision is None)
    return next(found, None)
