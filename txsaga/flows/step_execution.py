"""
The one place where a step, or its compensation, is executed, with its retries.

In a resource its row is in the same commit, so it is done once, however often it is requested. Anywhere else it is
announced before and after; if the process dies between the two, the result is unknown.

What a failed step left is found out as far as possible: work in a resource that did not commit leaves nothing, and only
a definite no of a service means that it did nothing. Everything else is unknown, and is undone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from txsaga import errors
from txsaga.core import facts
from txsaga.core.failure import complete, report_failure
from txsaga.core.kernel import Kernel
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.core.records import Half, Row, TxRecord
from txsaga.core.topic import SendKind
from txsaga.evidence.ports import Ran
from txsaga.flows.actions import CODE, ID, OUTPUT, Action, RequestedStep, called
from txsaga.flows.step import Left, StepKind

SERVICE_TIMEOUT = 30.0
UNSURE = (408, 425, 429)
"""A service with such an answer may have done the work, or will do it on a retry."""

Answer = TypeVar("Answer")


NEVER_AGAIN = (errors.StepLeftOut, errors.StepRefused, errors.ServiceRefused)
"""A retry would get the same answer."""


class Tries:
    """What the tries of one step leave behind, as far as it can be known."""

    __slots__ = ("_action", "_unsure", "left")

    def __init__(self, action: Action) -> None:
        self._action, self._unsure, self.left = action, False, Left.UNKNOWN

    def heard(self, error: BaseException) -> None:
        """Record the error of a try; only if every one was a definite no, NOTHING is left."""
        self._unsure = self._unsure or not _is_sure_no(self._action, error)
        self.left = Left.UNKNOWN if self._unsure else Left.NOTHING


class Turn(NamedTuple):
    """A step forwards, or its compensation."""

    transaction: str
    txid: int
    group: int
    number: int
    name: str
    undo: bool = False

    @property
    def row(self) -> str:
        """The name of its row in a resource."""
        return f"{'undo' if self.undo else 'step'}:{self.number}"

    @property
    def id(self) -> str:
        """Its unique id, by which a receiver can avoid doing it twice."""
        return f"{self.transaction}:{self.number}{':undo' if self.undo else ''}"


class StepActions:
    """Executes steps."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def run(
        self, life: TxRecord, number: int, asked: RequestedStep, failed: Callable[[BaseException, Left], object]
    ) -> tuple[object, str | None]:
        """Run a step, again if it may be retried; return its result, also as JSON, or report what it left."""
        transaction = self._kernel.store.registry.identity.transaction(life.txid)
        turn, tries = Turn(transaction, life.txid, life.group, number, asked.name), Tries(asked.action)
        with report_failure(lambda error: failed(error, tries.left)):
            output = self._ran(turn, asked, tries).output
            return output, asked.told(output)

    def _ran(self, turn: Turn, asked: RequestedStep, tries: Tries) -> Ran:
        attempt, action = 0, asked.action
        while True:
            try:
                with report_failure(tries.heard):
                    return self.do(turn, action, asked.input, function=asked.function)
            except (*NEVER_AGAIN, errors.AnswerLost, errors.TransactionClosed):
                raise
            except Exception:
                attempt += 1
                if attempt > (action.retries or 0):
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
        except errors.TxSagaError:
            return None  # it stays unknown
        return Ran(None if kept is None else json.loads(kept), False)

    def do(
        self,
        turn: Turn,
        action: Action,
        input: Mapping[str, object],
        *,
        output: object = None,
        function: Callable[..., object] | None = None,
    ) -> Ran:
        """Execute a step once; a function that is not passed in is found by name."""
        if action.timeout is None:
            return self._done(turn, action, input, output, function)
        what = f"{'the compensation of ' if turn.undo else ''}step {turn.name!r}"
        return within(action.timeout, what, lambda: self._done(turn, action, input, output, function))

    def _done(
        self,
        turn: Turn,
        action: Action,
        input: Mapping[str, object],
        output: object,
        function: Callable[..., object] | None,
    ) -> Ran:
        does: Callable[..., object] | str = action.what
        if action.kind is StepKind.CALL:
            found = function or CODE.find(action.what)
            does = partial(called, found, input=input, **{OUTPUT: output, ID: turn.id})
        if action.resource is not None:
            work = self._kernel.resource(action.resource)[1].steps
            given = input if isinstance(does, str) else {}
            return work.run(turn.transaction, turn.row, does, given, lambda done: self._tell(turn, done=done))
        with self._kernel.announce.around(facts.Acting, turn.txid, about=turn.name):
            if not isinstance(does, str):
                return Ran(does(), True)
            acts = self._called if action.kind is StepKind.HTTP else self._sent
            return Ran(acts(turn, action, input), True)

    def _tell(self, turn: Turn, *, done: bool) -> None:
        if self._kernel.announce:
            self._kernel.announce((facts.Worked if done else facts.Working)((turn.txid,), about=turn.name))

    def _called(self, turn: Turn, action: Action, input: Mapping[str, object]) -> object:
        options = action.options
        headers = {"Content-Type": "application/json", "Idempotency-Key": turn.id}
        given = options.get("headers")
        headers |= {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
        body, method = json.dumps(dict(input)).encode(), str(options.get("method", "POST"))
        try:
            reply = self._kernel.services(method, action.what, body, headers, action.timeout or SERVICE_TIMEOUT)
        except ConnectionRefusedError as closed:
            raise errors.ServiceUnreachable(f"{action.what} can't be reached: {closed}") from closed
        except OSError as lost:
            raise errors.ServiceFailed(f"{action.what} did not answer: {lost}") from lost
        if reply.is_yes and reply.cut:
            raise errors.AnswerLost(f"{action.what} confirmed it with {reply.status}, but its answer is {reply.cut}")
        if reply.is_yes:
            return _read(reply.body)
        refused = 400 <= reply.status < 500 and reply.status not in UNSURE
        raise (errors.ServiceRefused if refused else errors.ServiceFailed)(f"{action.what} answered {reply}")

    def _sent(self, turn: Turn, action: Action, input: Mapping[str, object]) -> None:
        options, body = action.options, action.options.get("body")
        message = Message(
            action.what,
            (str(body) if body is not None else json.dumps(dict(input))).encode(),
            key=_text(options.get("key")),
            tag=_text(options.get("tag")),
            headers={"txsaga-step": turn.id},
        )
        admitted, qid = self._kernel.topics.admit(message, SendKind.PLAIN)
        self._kernel.stores.call(Half(turn.group, [Row(qid, 0, 1, lay_out_one(admitted))], plain=True))


def within(seconds: float, what: str, work: Callable[[], Answer]) -> Answer:
    """Run work in its own thread and wait so long; what takes longer goes on unobserved."""
    done: Future[Answer] = Future()
    thread = threading.Thread(target=complete, args=(done, work), name="txsaga-step", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done.done():
        raise errors.StepTimedOut(what, seconds)
    return done.result()


def _read(body: bytes) -> object:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise errors.ConfigError(f"the key or tag of a message is {type(value).__name__}; give a text")
    return value


def _is_sure_no(action: Action, error: BaseException) -> bool:
    if not isinstance(error, Exception):
        return False  # it interrupted work at an unknown point
    if isinstance(error, (*NEVER_AGAIN, errors.ServiceUnreachable)):
        return True
    known = action.resource is not None or action.kind is StepKind.MESSAGE
    return known and not isinstance(error, errors.OutcomeUnknown | errors.StepTimedOut | errors.TransactionClosed)
