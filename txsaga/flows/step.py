"""
A step: one piece of a transaction's work, and what undoes it.

A step is identified by its number; in a flow also by its name, and each try of it is an attempt. Only the last attempt
counts (R4): what an earlier one prepared is rolled back, and what undoes the step has moved on to the last one.

It is written before it runs, with its input and its compensation, so that any later process knows what may have
happened. It is compensated only after ROLLBACK (R6), in reverse order of the starts.
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
from txsaga.errors import ConfigError, TransactionError

HOME = "home"
"""The home database as a place of journalled work: its rows are part of the decision's own commit."""
MAIN = 0
"""The unit of all work outside of lanes."""


class StepState(StrEnum):
    """The state of a step."""

    STARTED = "started"  # written; it may be running, or have run
    DONE = "done"
    FAILED = "failed"
    COMPENSATING = "compensating"  # after ROLLBACK: it is undone now, or when its turn comes
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"  # out of retries: an operator resumes or skips it
    SKIPPED = "skipped"  # by an operator, with a reason


class StepEvent(StrEnum):
    """What changes the state of a step."""

    FINISH = "finish"
    FAIL = "fail"
    COMPENSATE = "compensate"
    UNDO = "undo"
    GIVE_UP = "give_up"
    RESUME = "resume"
    SKIP = "skip"


STEP: Lifecycle[StepState, StepEvent] = Lifecycle(
    {
        (StepState.STARTED, StepEvent.FINISH): StepState.DONE,
        (StepState.STARTED, StepEvent.FAIL): StepState.FAILED,
        **{
            (state, StepEvent.COMPENSATE): StepState.COMPENSATING
            for state in (StepState.STARTED, StepState.DONE, StepState.FAILED)
        },
        (StepState.COMPENSATING, StepEvent.UNDO): StepState.COMPENSATED,
        (StepState.COMPENSATING, StepEvent.GIVE_UP): StepState.COMPENSATION_FAILED,
        (StepState.COMPENSATION_FAILED, StepEvent.RESUME): StepState.COMPENSATING,
        (StepState.COMPENSATION_FAILED, StepEvent.SKIP): StepState.SKIPPED,
        (StepState.COMPENSATING, StepEvent.SKIP): StepState.SKIPPED,
        (StepState.STARTED, StepEvent.SKIP): StepState.SKIPPED,  # after the point of no return
    }
)
TARGETS: Mapping[StepEvent, StepState] = {event: state for (_, event), state in STEP.moves.items()}

UNDONE = frozenset({StepState.COMPENSATED, StepState.SKIPPED})
"""Nothing is left to do for these after a rollback."""


class Hold(StrEnum):
    """How the work of a step is held until the decision."""

    COMMIT = "commit"  # not at all: it is settled when the step ends
    PREPARED = "prepared"  # executed now, held as a prepared branch
    JOURNAL = "journal"  # recorded now, executed at the decision


def read_hold(hold: Hold | str | None) -> Hold | None:
    """Return how a caller wants work to be held; None: as its resource can."""
    if hold is not None and hold not in (Hold.PREPARED, Hold.JOURNAL):
        raise TransactionError(f'hold is {hold!r}; use "prepared" or "journal", or leave it out')
    return None if hold is None else Hold(hold)


class StepKind(StrEnum):
    """How a step is executed."""

    CALL = "call"  # a function; on a resource it works in a local transaction there
    SQL = "sql"  # one statement on a resource
    HTTP = "http"
    MESSAGE = "message"
    HELD = "held"  # a block of a flow, whose work is held: after ROLLBACK only what its lane committed is left


class Left(StrEnum):
    """What a step is known to have left behind."""

    UNKNOWN = "unknown"
    WORK = "work"
    NOTHING = "nothing"


class Step(NamedTuple):
    """One attempt of a step as the store keeps it; number 1 was started first."""

    txid: int
    number: int
    attempt: int  # of a saga's step: the owner that started it
    name: str
    state: StepState = StepState.STARTED
    hold: Hold | None = None  # None: it only sends
    kind: StepKind | None = None  # None: there is nothing to undo, or a later attempt has it
    resource: str | None = None
    described_on: str | None = None  # where an earlier attempt was to do what this one's kind undoes; "": nowhere
    lane: bool = False
    unit: int = MAIN
    branch: int | None = None  # the number of the branch that holds it
    mark: str = ""  # the server's id for the work that it holds, if it does not know our name; or an application
    input: str = "{}"  # JSON, as are compensation, action and output
    compensation: str | None = None
    action: str | None = None  # only after the point of no return: what its driver executes
    output: str | None = None
    statements: int = 0  # in its journal
    left: Left = Left.UNKNOWN
    error: str = ""
    tries: int = 0  # of its compensation, or of a step after the point of no return
    due: datetime | None = None  # when what it reserved expires
    started: datetime | None = None
    at: datetime | None = None  # when its state changed
    late: bool = False  # it held its locks for longer than its budget, and that was reported

    @property
    def evidence(self) -> str | None:
        """Return the resource that shows whether what is to be undone was done."""
        return self.resource if self.described_on is None else self.described_on or None

    @property
    def forward(self) -> bool:
        """Return whether it is after the point of no return."""
        return self.action is not None

    @property
    def waits(self) -> bool:
        """Return whether something is left to do for it, now that its transaction is decided."""
        if self.forward:
            return self.state is StepState.STARTED
        return self.kind is not None and self.state not in UNDONE

    @property
    def holds_locks(self) -> bool:
        """Return whether it is done and its resource holds its locks until the decision."""
        return self.left is Left.WORK and self.branch is not None and self.hold is Hold.PREPARED

    def finished(self, **values: object) -> Step:
        """Return it as done, its work left behind."""
        done = self._replace(state=STEP.after(self.state, StepEvent.FINISH), left=Left.WORK)
        return done._replace(**values)  # type: ignore[arg-type]

    def failed(self, why: str, left: Left = Left.UNKNOWN) -> Step:
        """Return it as failed."""
        return self._replace(state=STEP.after(self.state, StepEvent.FAIL), left=left, error=why)


def last_attempts(steps: Iterable[Step]) -> Sequence[Step]:
    """Return the last attempt of each step, in the order of the steps."""
    last = {step.number: step for step in sorted(steps, key=lambda each: (each.number, each.attempt))}
    return list(last.values())


class Unit(NamedTuple):
    """A unit of a lane, or of main work: what is settled together in one resource."""

    resource: str
    number: int
    branch: int | None = None  # in which its journal runs
    attempt: int = 0  # the last one to run it
    decision: Decision | None = None  # its own; without one it follows the flow's
    at: datetime | None = None

    @property
    def place(self) -> tuple[str, int]:
        """The place that its steps name as theirs."""
        return self.resource, self.number


def open_unit(units: Iterable[Unit], resource: str) -> Unit | None:
    """Return the open unit of a lane, if there is one."""
    found = (each for each in units if each.resource == resource and each.number != MAIN and each.decision is None)
    return next(found, None)


def lane_unit(step: Step, units: Iterable[Unit]) -> Unit | None:
    """Return the unit that a step's work belongs to, if it is done and belongs to a lane."""
    if not step.lane or step.left is not Left.WORK:
        return None
    return next((each for each in units if each.place == (step.resource, step.unit)), None)


def is_undone(step: Step, units: Iterable[Unit]) -> bool:
    """Return whether ROLLBACK alone undoes what a step did.

    It undoes all but what a lane has committed, or may have: a journal whose branch is named was begun.
    """
    if step.kind is not StepKind.HELD:
        return False
    unit = lane_unit(step, units)
    return unit is None or unit.decision is Decision.ROLLBACK or (unit.decision is None and unit.branch is None)


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


BUDGET = timedelta(seconds=60)
LEASE = timedelta(hours=1)
"""A flow without a sign of life for so long is rolled back."""


class Enrolled(NamedTuple):
    """A resource that a flow may work in: in its main transaction, or in its lane."""

    resource: str
    lane: bool = False
    budget: timedelta = BUDGET  # locks of it that are held for longer are reported


class Amendment(NamedTuple):
    """Why a transaction record of a key was begun, and what it amends."""

    by: str
    of: int | None = None  # None: nothing was committed under the key when it was begun


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
