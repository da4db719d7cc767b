"""
The steps of a flow whose work is held until it is decided: what each attempt did, where, and how it is held.

A step is identified by its name; each try of it is an attempt. Only the last attempt counts (R4): what an earlier one
prepared is rolled back, its journal is deleted. Work of a lane belongs to one of its units, main work to unit 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.core.lifecycle import Lifecycle
from txsaga.core.stored_json import as_json
from txsaga.errors import ConfigError
from txsaga.flows.declaration import Hold

HOME = "home"
"""The home database as a place of journalled work: its rows are part of the decision's own commit."""
MAIN = 0
"""The unit of all work outside of lanes."""
PARTS = 1_000
"""Messages of a step are a contribution of their own, with part numbers after those of blocks."""
BUDGET = timedelta(seconds=60)
LEASE = timedelta(hours=1)
"""A flow without a sign of life for so long is rolled back."""


class FlowStepState(StrEnum):
    """The state of one attempt of a step."""

    STARTED = "started"  # it runs, or its process died
    DONE = "done"
    FAILED = "failed"  # it raised; nothing of it is held


class FlowStepEvent(StrEnum):
    """What changes the state of an attempt."""

    FINISH = "finish"
    FAIL = "fail"


FLOW_STEP: Lifecycle[FlowStepState, FlowStepEvent] = Lifecycle(
    {
        (FlowStepState.STARTED, FlowStepEvent.FINISH): FlowStepState.DONE,
        (FlowStepState.STARTED, FlowStepEvent.FAIL): FlowStepState.FAILED,
    }
)


class Enrolled(NamedTuple):
    """A resource that a flow may work in: in its main transaction, or in its lane."""

    resource: str
    lane: bool = False
    budget: timedelta = BUDGET  # locks of it that are held for longer are reported


class FlowStep(NamedTuple):
    """One attempt of a step."""

    number: int  # of the step, in the order of first starts
    name: str
    attempt: int
    state: FlowStepState
    resource: str | None  # None: it only sends
    hold: Hold | None
    lane: bool = False
    unit: int = MAIN
    branch: int | None = None  # the number of the branch that holds it
    started: datetime | None = None
    ended: datetime | None = None
    mark: str = ""  # the server's id for the work that it holds, if it does not know our name; or an application
    why: str = ""
    late: bool = False  # it held its locks for longer than its budget, and that was reported
    statements: int = 0

    @property
    def holds_locks(self) -> bool:
        """Return whether it is done and its resource holds its locks until the decision."""
        return self.state is FlowStepState.DONE and self.branch is not None and self.hold is Hold.PREPARED


class FlowUnit(NamedTuple):
    """A unit of a lane, or of main work: what is settled together in one resource."""

    resource: str
    number: int
    branch: int | None = None  # in which its journal runs
    attempt: int = 0  # the last one to run it
    decision: Decision | None = None  # its own; without one it follows the flow's
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
        """Return whether it changed as many rows as it was to change."""
        return count >= 1 if self.rows is None else count == self.rows


class HeldLocks(NamedTuple):
    """What undecided flows hold in one resource, and how much of it beyond its budget."""

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
    """Return the last attempt of each step, in the order of the steps."""
    last: dict[int, FlowStep] = {}
    for step in sorted(steps, key=lambda each: (each.number, each.attempt)):
        last[step.number] = step
    return list(last.values())


def lane_unit(steps: Iterable[FlowStep], units: Iterable[FlowUnit], number: int) -> FlowUnit | None:
    """Return the unit that a step's work belongs to, if it is done and belongs to a lane."""
    step = next((each for each in last_attempts(steps) if each.number == number), None)
    if step is None or not step.lane or step.state is not FlowStepState.DONE:
        return None
    return next((each for each in units if each[:2] == (step.resource, step.unit)), None)


def is_undone(steps: Iterable[FlowStep], units: Iterable[FlowUnit], number: int) -> bool:
    """Return whether ROLLBACK alone undoes the work of a step.

    It undoes all but what a lane has committed, or may have: a journal whose branch is named was begun.
    """
    unit = lane_unit(steps, units, number)
    if unit is None or unit.decision is Decision.ROLLBACK:
        return True
    return unit.decision is None and unit.branch is None


def open_unit(units: Iterable[FlowUnit], resource: str) -> FlowUnit | None:
    """Return the open unit of a lane, if there is one."""
    found = (each for each in units if each.resource == resource and each.number != MAIN and each.decision is None)
    return next(found, None)


AMENDS = "__amends__"
"""The header of a message that names the transaction whose messages it replaces."""

NO_OTHER_INPUT = "what that one consumed is done: another message is no amendment of it; begin a flow of its own for it"


class Amendment(NamedTuple):
    """Why a transaction record of a key was begun, and what it amends."""

    by: str
    of: int | None = None  # None: nothing was committed under the key when it was begun


class Application(NamedTuple):
    """The application that runs an attempt of a step."""

    member: str  # its process, by the name of its leases
    about: Mapping[str, object]  # how its own system describes it; JSON
    result: str | None = None  # JSON, once the attempt is done

    def written(self) -> str:
        """Return it as the mark of its attempt."""
        return json.dumps(self._asdict())

    @property
    def name(self) -> str:
        """The name by which its own system knows it."""
        return str(self.about.get("id") or self.member)


def read_application(mark: str) -> Application | None:
    """Read the mark of an attempt; None if no application runs it."""
    if not mark.startswith("{"):
        return None
    found = json.loads(mark)
    return Application(found["member"], found["about"], found.get("result"))


def require_application(about: object) -> None:
    """Refuse a description that could not be read again."""
    if not isinstance(about, Mapping) or not isinstance(about.get("id"), str) or not about["id"]:
        raise ConfigError(f"application is {about!r}; give a mapping that names it by 'id', like {{'id': 'app-1'}}")
    as_json(dict(about), "what describes the application")
