"""
A step: one piece of a transaction's work that commits by itself, and what undoes it.

It is written down before it runs, with its input and its compensation, so that whoever comes later knows what may have
happened. It is compensated only once ROLLBACK stands (R6), in the reverse order of its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from txsaga.core.lifecycle import Lifecycle


class StepState(StrEnum):
    """Where a step stands."""

    STARTED = "started"  # written down; it may run, or have run
    DONE = "done"
    FAILED = "failed"
    COMPENSATING = "compensating"  # ROLLBACK stands: it is undone now, or when its turn comes
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"  # out of retries: a person resumes or skips it
    SKIPPED = "skipped"  # by a person, with a reason


class StepEvent(StrEnum):
    """What moves a step."""

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
        (StepState.STARTED, StepEvent.RETRY): StepState.STARTED,  # of a flow: each attempt takes the place of the last
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
        (StepState.STARTED, StepEvent.SKIP): StepState.SKIPPED,  # behind the point of no return
    }
)
TARGETS: Mapping[StepEvent, StepState] = {event: state for (_, event), state in STEP.moves.items()}

UNDONE = frozenset({StepState.COMPENSATED, StepState.SKIPPED})
"""Of a transaction that was rolled back: nobody has to see to these any more."""


class StepKind(StrEnum):
    """Who does it."""

    CALL = "call"  # a function; on a resource it works in that one's local transaction
    SQL = "sql"  # one statement on a resource
    HTTP = "http"
    MESSAGE = "message"
    HELD = "held"  # a block of a flow, whose work is held: only what its lane committed is left behind ROLLBACK


class Left(StrEnum):
    """What is known of what a step left behind."""

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
    action: str | None  # of one behind the point of no return: what whoever drives it does
    output: str | None
    left: Left
    error: str
    attempts: int  # of its compensation, or of a step behind the point of no return
    due: datetime | None  # when what it reserved expires
    at: datetime

    @property
    def forward(self) -> bool:
        """Tell whether it stands behind the point of no return."""
        return self.action is not None

    @property
    def waits(self) -> bool:
        """Tell whether somebody has to see to it, now that its transaction is decided."""
        if self.forward:
            return self.state is StepState.STARTED
        return self.state not in UNDONE
