"""
One step forwards, with its retries: its result, or what it is known to have left if it failed.

What a failed step left is found out as far as possible: work in a resource that did not commit leaves nothing, and only
a definite no of a service means that it did nothing. Everything else is unknown, and is undone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from txsaga.consume.dead_letter import short_cause
from txsaga.core.arguments import check_kind, check_text
from txsaga.core.failure import on_failure, report_failure
from txsaga.core.kernel import Kernel
from txsaga.core.stored_json import as_json
from txsaga.errors import (
    AnswerLost,
    OutcomeUnknown,
    ServiceRefused,
    StepLeftOut,
    StepRefused,
    StepTimedOut,
    TransactionClosed,
    TxSagaError,
)
from txsaga.evidence.ports import Ran
from txsaga.flows.calls import Start
from txsaga.flows.saga_actions import StepActions, Turn
from txsaga.flows.saga_code import Doing, action_of, check_times, checked_retries, kind_of, name_of, undoing
from txsaga.flows.saga_owner import SagaOwner
from txsaga.flows.saga_values import FIRST_PAUSE, Action, StepTimes, Undo
from txsaga.flows.step import Left, StepKind

NEVER_AGAIN = (StepLeftOut, StepRefused, ServiceRefused)
"""A retry would get the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStep:
    """A step as the user requests it."""

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
        """Return what the requesting process does: a function needs no registered name."""
        more = {"retries": self.retries, "timeout": self.timeout, "pause": self.pause}
        return action_of(self.do, self.on, registered=False, **more)

    def start(self, number: int, action: Action) -> Start:
        """Return what is written before the step runs."""
        kept = as_json(dict(self.input), f"the input of step {self.name!r}")
        undo = undoing(self.compensate, self.on)
        written = None if undo is None else undo.written()
        return Start(number, self.name, action.kind, action.resource, kept, written, expires=self.expires)

    def told(self, output: object) -> str | None:
        """Return its result as JSON; for a statement, the number of rows it changed."""
        if output is None or (isinstance(self.do, str) and not isinstance(output, int)):
            return None
        return as_json(output, f"what step {self.name!r} returned")


class Tries:
    """What the tries of one step leave behind, as far as it can be known."""

    __slots__ = ("_action", "_failed", "_unsure")

    def __init__(self, action: Action) -> None:
        self._action, self._failed, self._unsure = action, False, False

    def heard(self, error: BaseException) -> None:
        """Record the error of a try."""
        self._failed = True
        self._unsure = self._unsure or not _is_sure_no(self._action, error)

    @property
    def left(self) -> Left:
        """What is left: NOTHING only if every try was a definite no."""
        return Left.NOTHING if self._failed and not self._unsure else Left.UNKNOWN


class StepRetry:
    """Runs steps, with retries."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._acting = kernel, StepActions(kernel)

    def run(self, turn: Turn, action: Action, asked: RequestedStep, tries: Tries) -> Ran:
        """Run a step, again if it may be retried."""
        function: Callable[..., object] | None = asked.do if callable(asked.do) else None
        attempt = 0
        while True:
            try:
                with report_failure(tries.heard):
                    return self._acting.do(turn, action, asked.input, function=function)
            except (*NEVER_AGAIN, AnswerLost, TransactionClosed):
                raise
            except Exception:
                attempt += 1
                if attempt > asked.retries:
                    if tries.left is Left.UNKNOWN and (done := self._done_after_all(turn, action)) is not None:
                        return done
                    raise
            time.sleep(action.pause_before(attempt, self._kernel.jitter()))

    def _done_after_all(self, turn: Turn, action: Action) -> Ran | None:
        """Check whether work whose COMMIT was not answered is there; fence it if not."""
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
        return False  # it interrupted work at an unknown point
    if isinstance(error, NEVER_AGAIN):
        return True
    known = action.resource is not None or action.kind is StepKind.MESSAGE
    return known and not isinstance(error, OutcomeUnknown | StepTimedOut | TransactionClosed)


INPUT = "give a mapping of names to JSON values"


class StepOptions(StepTimes, total=False):
    """The options of a step."""

    compensate: Doing | Undo | None
    on: str | None
    name: str | None
    input: Mapping[str, object] | None


def asked(
    do: Doing,
    *,
    compensate: Doing | Undo | None = None,
    on: str | None = None,
    name: str | None = None,
    input: Mapping[str, object] | None = None,
    retries: int = 0,
    timeout: float | None = None,
    pause: float = FIRST_PAUSE,
    expires: timedelta | None = None,
) -> RequestedStep:
    """Check the options of a step."""
    if on is not None:
        check_text(on, "the resource of a step", "give the name of a registered one")
    kind_of(do, on)
    check_times(timeout, pause)
    if input is not None:
        check_kind(input, Mapping, "the input of a step", INPUT)
        for key in input:
            check_kind(key, str, "a name in the input of a step", INPUT)
    if name not in (None, ""):
        check_text(name, "the name of a step", "give a text")
    return RequestedStep(
        do=do,
        on=on,
        compensate=compensate,
        name=name or name_of(do),
        input=input or {},
        retries=checked_retries(retries),
        timeout=timeout,
        pause=pause,
        expires=expires,
    )


class StepRunner:
    """Runs the steps of one saga."""

    def __init__(self, kernel: Kernel, owner: SagaOwner) -> None:
        self._kernel, self._owner, self._trying = kernel, owner, StepRetry(kernel)
        self._known = (0, "")

    def run(self, number: int, asked: RequestedStep) -> object:
        """Run a step to its end; return its result."""
        action = asked.action()
        self._record(asked.start(number, action))
        tries = Tries(action)
        with report_failure(partial(self._fail, number, tries)):
            ran = self._trying.run(self._turn(number, asked.name), action, asked, tries)
            told = asked.told(ran.output)
        self._owner.finish(number, told)
        return ran.output

    def _record(self, start: Start) -> None:
        with on_failure(self._owner.drop, start.number):  # it never ran
            self._owner.record(start)

    def _fail(self, number: int, tries: Tries, error: BaseException) -> None:
        self._owner.fail(number, tries.left, short_cause(f"{type(error).__name__}: {error}"))

    def _turn(self, number: int, name: str) -> Turn:
        life = self._owner.life
        assert life is not None
        if self._known[0] != life.txid:
            self._known = life.txid, self._kernel.store.registry.identity.transaction(life.txid)
        return Turn(self._known[1], life.txid, life.group, number, name)


PATIENCE = 30.0
"""Seconds that all pauses together may take."""


def patience(seconds: float = PATIENCE) -> Callable[[float], bool]:
    """Return a function that waits, as long as all its pauses together are not too long."""
    end = time.monotonic() + seconds

    def wait(pause: float) -> bool:
        if time.monotonic() + pause > end:
            return False
        time.sleep(pause)
        return True

    return wait


def impatient(_: float) -> bool:
    """Never wait: there are other sagas to be driven."""
    return False
