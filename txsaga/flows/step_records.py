"""
The steps of a flow whose work is held until it is decided: what each attempt did, where, and how it is held.

A step is a name; each try of it is an attempt. Only the last attempt counts (R4): what an earlier one prepared is
rolled back, what it wrote into its journal is gone. Work of a lane belongs to a unit of it, main work to unit 0.
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
"""The unit of everything that is no lane's."""
PARTS = 1_000
"""Messages of a step are a contribution of their own, behind those of blocks."""
BUDGET = timedelta(seconds=60)
LEASE = timedelta(hours=1)
"""A flow that nobody was heard of for so long is rolled back."""


class FlowStepState(StrEnum):
    """Where one attempt of a step stands."""

    STARTED = "started"  # it works, or it died
    DONE = "done"
    FAILED = "failed"  # it raised; nothing of it is held


class FlowStepEvent(StrEnum):
    """What moves an attempt of a step."""

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
    budget: timedelta = BUDGET  # locks of it that are held for longer are told of


class FlowStep(NamedTuple):
    """One attempt of a step."""

    number: int  # of the step, in the order in which they were started first
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
    mark: str = ""  # how the server calls the work that it holds, where it does not know our name; or an application
    why: str = ""
    late: bool = False  # it held its locks for longer than its budget, and that was told
    statements: int = 0

    @property
    def holds_locks(self) -> bool:
        """Tell whether it is done and its resource holds its locks until the decision."""
        return self.state is FlowStepState.DONE and self.branch is not None and self.hold is Hold.PREPARED


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
    if step is None or not step.lane or step.state is not FlowStepState.DONE:
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


AMENDS = "__amends__"
"""The header of a message that names the transaction whose messages it takes the place of."""

NO_OTHER_INPUT = "what that one consumed is done: another message is no amendment of it; begin a flow of its own for it"


class Amendment(NamedTuple):
    """Why a life of a key was begun, and what it amends."""

    by: str
    of: int | None = None  # None: nothing was committed under the key when it was begun


class Application(NamedTuple):
    """Who does an attempt of a step."""

    member: str  # its process, by the name of its leases
    about: Mapping[str, object]  # what it is called where it runs; JSON
    result: str | None = None  # JSON, once the attempt is done

    def written(self) -> str:
        """Write it down as the mark of its attempt."""
        return json.dumps(self._asdict())

    @property
    def name(self) -> str:
        """The name by which its own system knows it."""
        return str(self.about.get("id") or self.member)


def read_application(mark: str) -> Application | None:
    """Read the mark of an attempt; None where no application does it."""
    if not mark.startswith("{"):
        return None
    found = json.loads(mark)
    return Application(found["member"], found["about"], found.get("result"))


def require_application(about: object) -> None:
    """Refuse what could not be read again."""
    if not isinstance(about, Mapping) or not isinstance(about.get("id"), str) or not about["id"]:
        raise ConfigError(f"application is {about!r}; give a mapping that names it by 'id', like {{'id': 'app-1'}}")
    as_json(dict(about), "what describes the application")
