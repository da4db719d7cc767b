"""
One step forwards, as often as it is asked for: what it came to, and what is known to be left of it where it failed.

What a failed step left behind is found out as far as that can be known: of work in a resource that did not commit
nothing is there, and only a sure no of a service means that it did nothing. The rest is unknown, and is undone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from txsaga.engine.kernel import Kernel
from txsaga.engine.saga.acting import Acting, Turn
from txsaga.engine.saga.naming import Doing, action_of, undoing
from txsaga.errors import OutcomeUnknown, TransactionClosed, TxSagaError
from txsaga.errors.saga import AnswerLost, ServiceRefused, StepLeftOut, StepRefused, StepTimedOut
from txsaga.model.keeping import as_json
from txsaga.model.saga import Action, Undo
from txsaga.model.step import Left, StepKind
from txsaga.ports.step_work import Ran
from txsaga.ports.steps import Start

NEVER_AGAIN = (StepLeftOut, StepRefused, ServiceRefused)
"""The answer would be the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A step as a user asks for it."""

    do: Doing
    on: str | None
    compensate: Doing | Undo | None
    name: str
    input: Mapping[str, object]
    retries: int
    timeout: float | None
    pause: float
    expires: timedelta | None = None

    def action(self) -> Action:
        """Return what is done by whoever asked: it needs no name that others know."""
        more = {"retries": self.retries, "timeout": self.timeout, "pause": self.pause}
        return action_of(self.do, self.on, registered=False, **more)

    def start(self, number: int, action: Action) -> Start:
        """Return what is written down before it runs."""
        kept = as_json(dict(self.input), f"the input of step {self.name!r}")
        undo = undoing(self.compensate, self.on)
        written = None if undo is None else undo.written()
        return Start(number, self.name, action.kind, action.resource, kept, written, expires=self.expires)

    def told(self, output: object) -> str | None:
        """Write down what it returned; of a statement, how many rows it changed."""
        if output is None or (isinstance(self.do, str) and not isinstance(output, int)):
            return None
        return as_json(output, f"what step {self.name!r} returned")


class Tries:
    """What the tries of one step leave behind, as far as it can be known."""

    __slots__ = ("_action", "_failed", "_unsure")

    def __init__(self, action: Action) -> None:
        self._action, self._failed, self._unsure = action, False, False

    def heard(self, error: BaseException) -> bool:
        """Take what a try came to; tell whether one of them may have done its work, or may still do it."""
        self._failed = True
        self._unsure = self._unsure or not _is_sure_no(self._action, error)
        return self._unsure

    @property
    def left(self) -> Left:
        """What is left: nothing only where every try was a sure no."""
        return Left.NOTHING if self._failed and not self._unsure else Left.UNKNOWN


class Trying:
    """Runs steps."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._acting = kernel, Acting(kernel)

    def run(self, turn: Turn, action: Action, asked: Asked, tries: Tries) -> Ran:
        """Do a step, again where it may be tried again."""
        function: Callable[..., object] | None = asked.do if callable(asked.do) else None
        attempt = 0
        while True:
            try:
                return self._acting.do(turn, action, asked.input, function=function)
            except BaseException as error:
                unsure = tries.heard(error)
                if not isinstance(error, Exception) or isinstance(error, (*NEVER_AGAIN, AnswerLost, TransactionClosed)):
                    raise
                attempt += 1
                if attempt > asked.retries:
                    if unsure and (done := self._done_after_all(turn, action)) is not None:
                        return done
                    raise
            time.sleep(action.pause_before(attempt, self._kernel.jitter()))

    def _done_after_all(self, turn: Turn, action: Action) -> Ran | None:
        """Look whether work whose COMMIT was not answered is there; keep it out where it is not."""
        if action.resource is None:
            return None
        work = self._kernel.resource(action.resource)[1].steps
        try:
            if not work.fence(turn.transaction, turn.row):
                return None
            kept = work.output(turn.transaction, turn.row)
        except TxSagaError:
            return None  # it stays unknown
        return Ran(None if kept is None else json.loads(kept), False)


def _is_sure_no(action: Action, error: BaseException) -> bool:
    if not isinstance(error, Exception):
        return False  # it interrupted whatever was under way
    if isinstance(error, NEVER_AGAIN):
        return True
    known = action.resource is not None or action.kind is StepKind.MESSAGE
    return known and not isinstance(error, OutcomeUnknown | StepTimedOut | TransactionClosed)
