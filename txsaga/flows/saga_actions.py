"""
The one place where a step, or its compensation, is executed.

In a resource its row is in the same commit, so it is done once, however often it is requested. Anywhere else it is
announced before and after; if the process dies between the two, the result is unknown.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from txsaga.core import facts
from txsaga.core.failure import complete
from txsaga.core.kernel import Kernel
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.core.records import Half, Row
from txsaga.core.topic import SendKind
from txsaga.errors import AnswerLost, ConfigError, ServiceFailed, ServiceRefused, StepTimedOut
from txsaga.evidence.ports import Ran
from txsaga.flows.saga_code import CODE, ID, OUTPUT, called
from txsaga.flows.saga_values import Action
from txsaga.flows.step import StepKind

SERVICE_TIMEOUT = 30.0
UNSURE = (408, 425, 429)
"""A service with such an answer may have done the work, or will do it on a retry."""

Answer = TypeVar("Answer")


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

    def do(
        self,
        turn: Turn,
        action: Action,
        input: Mapping[str, object],
        *,
        output: object = None,
        function: Callable[..., object] | None = None,
    ) -> Ran:
        """Execute a step; a function that is not passed in is found by name."""
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
        if action.kind is StepKind.CALL:
            found, special = function or CODE.find(action.what), {OUTPUT: output, ID: turn.id}
            if action.resource is None:
                return self._acted(turn, lambda: called(found, input=input, **special))
            work = self._kernel.resource(action.resource)[1].steps
            return work.run(
                turn.transaction,
                turn.row,
                lambda connection: called(found, connection, input=input, **special),
                {},
                lambda done: self._tell(turn, done=done),
            )
        if action.kind is StepKind.SQL:
            assert action.resource is not None
            work = self._kernel.resource(action.resource)[1].steps
            return work.run(turn.transaction, turn.row, action.what, input, lambda done: self._tell(turn, done=done))
        if action.kind is StepKind.HTTP:
            return self._acted(turn, lambda: self._called(turn, action, input))
        return self._acted(turn, lambda: self._sent(turn, action, input))

    def _acted(self, turn: Turn, work: Callable[[], object]) -> Ran:
        if not self._kernel.announce:
            return Ran(work(), True)
        with self._kernel.announce.around(facts.Acting, turn.txid, about=turn.name):
            return Ran(work(), True)

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
            raise ServiceRefused(f"{action.what} can't be reached: {closed}") from closed
        except OSError as lost:
            raise ServiceFailed(f"{action.what} did not answer: {lost}") from lost
        if reply.is_yes and reply.cut:
            raise AnswerLost(f"{action.what} did it, and answered {reply.status} with {reply.cut}")
        if reply.is_yes:
            return _read(reply.body)
        refused = 400 <= reply.status < 500 and reply.status not in UNSURE
        raise (ServiceRefused if refused else ServiceFailed)(f"{action.what} answered {reply}")

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
        raise StepTimedOut(what, seconds)
    return done.result()


def _read(body: bytes) -> object:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"the key or tag of a message is {type(value).__name__}; give a text")
    return value
