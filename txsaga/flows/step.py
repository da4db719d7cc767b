"""
A step: one piece of a transaction's work that commits on its own, and its compensation.

It is written before it runs, with its input and its compensation, so that any later process knows what may have
happened. It is compensated only after ROLLBACK (R6), in reverse order of the starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from txsaga.core.lifecycle import Lifecycle


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
    RETRY = "retry"


STEP: Lifecycle[StepState, StepEvent] = Lifecycle(
    {
        (StepState.STARTED, StepEvent.FINISH): StepState.DONE,
        (StepState.STARTED, StepEvent.FAIL): StepState.FAILED,
        (StepState.STARTED, StepEvent.RETRY): StepState.STARTED,  # of a flow: each attempt replaces the last
        (StepState.FAILED, StepEvent.RETRY): StepState.STARTED,
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


class StepRecord(NamedTuple):
    """A step as the store keeps it; number 1 was started first."""

    txid: int
    number: int
    name: str
    attempt: int  # of the owner that started it
    state: StepState
    kind: StepKind
    resource: str | None
    input: str  # JSON, as are action, compensation and output
    compensation: str | None
    action: str | None  # only after the point of no return: what its driver executes
    output: str | None
    left: Left
    error: str
    attempts: int  # of its compensation, or of a step after the point of no return
    due: datetime | None  # when what it reserved expires
    at: datetime

    @property
    def forward(self) -> bool:
        """Return whether it is after the point of no return."""
        return self.action is not None

    @property
    def waits(self) -> bool:
        """Return whether something is left to do for it, now that its transaction is decided."""
        if self.forward:
            return self.state is StepState.STARTED
        return self.state not in UNDONE
