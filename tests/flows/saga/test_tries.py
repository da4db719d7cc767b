"""What a step left behind is judged by all of its tries: one that may have done its work outweighs every later no."""

from __future__ import annotations

import pytest

from txsaga.errors import OutcomeUnknown, ServiceFailed, ServiceRefused, StepTimedOut, StoreUnavailable
from txsaga.flows.actions import Action
from txsaga.flows.step import Left, StepKind
from txsaga.flows.step_execution import Tries

LOST, AWAY = OutcomeUnknown("its COMMIT was not answered"), StoreUnavailable("it is away")
FAILED, REFUSED = ServiceFailed("ship", "the answer was lost"), ServiceRefused("ship", "409")
LATE = StepTimedOut("ship", 1.0)


@pytest.mark.rule("R14")
@pytest.mark.parametrize(
    ("kind", "errors", "left"),
    [
        (StepKind.HTTP, [REFUSED], Left.NOTHING),
        (StepKind.HTTP, [FAILED, REFUSED], Left.UNKNOWN),
        (StepKind.HTTP, [FAILED], Left.UNKNOWN),
        (StepKind.SQL, [AWAY], Left.NOTHING),
        (StepKind.SQL, [AWAY, AWAY], Left.NOTHING),
        (StepKind.SQL, [LOST, AWAY], Left.UNKNOWN),
        (StepKind.SQL, [LATE, AWAY], Left.UNKNOWN),
        (StepKind.SQL, [KeyboardInterrupt()], Left.UNKNOWN),
        (StepKind.MESSAGE, [LOST, AWAY], Left.UNKNOWN),
        (StepKind.HTTP, [], Left.UNKNOWN),  # it went well, and what it returned could not be kept
    ],
)
def test_only_a_sure_no_of_every_try_leaves_nothing(kind: StepKind, errors: list[BaseException], left: Left) -> None:
    tries = Tries(Action(kind=kind, what="x", resource="bank" if kind is StepKind.SQL else None))
    for error in errors:
        tries.heard(error)
    assert tries.left is left
