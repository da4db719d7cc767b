"""
A saga: steps that commit one by one, and are undone one by one if the saga fails.

    with broker.saga("travel", key="trip-7") as saga:
        saga.step(debit, on="bank", compensate=refund, input={"account": 7, "amount": 100})
        with saga.parallel() as together:
            together.step(book_flight, on="flights", compensate=cancel_flight, input={…})
            together.step(Http("https://hotels.example/book"), compensate=Http("https://hotels.example/cancel"))
        saga.send("trips", b"trip 7 is booked")
        saga.no_return()
        saga.step(mail_ticket, input={"trip": 7})

Each step is written before it runs, with its input and its compensation. Leaving the block decides in ONE commit of the
home database, messages included:

    no exception             COMMIT; then steps after the point of no return are retried until they are done
    exception in the block   ROLLBACK; then the steps are undone in reverse order of their start; then it is raised
    this process dies        ROLLBACK by another process once its lease has run out, which undoes them (R6)

The result of a step is written with the next step or the decision: until then only its resource has it. The first step
of a saga without a key begins it. A step that raised and was caught does not fail the saga if it is known to have left
nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Self, Unpack

from txsaga import errors
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.arguments import check_count, check_duration
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.kernel import Kernel
from txsaga.core.records import Group, Row, TxRecord
from txsaga.flows.actions import HELD, Doing, RequestedStep, StepOptions, StepTimes, Undo, asked, elsewhere
from txsaga.flows.owner import Owner
from txsaga.flows.requests import ClaimedSaga, Mark, RecordSteps, Start
from txsaga.flows.saga_driver import drive
from txsaga.flows.step import Hold, Left, Step, StepEvent, StepState
from txsaga.flows.step_execution import StepActions
from txsaga.messages.message_buffer import INCOMPLETE, DecidedBlock
from txsaga.messages.stored_block import BlockStage


class SagaSteps:
    """The steps of one saga, as this process knows them."""

    def __init__(self, kernel: Kernel, owner: Owner) -> None:
        self._kernel, self._owner, self._lock = kernel, owner, Lock()
        self._acting = StepActions(kernel)
        self._marks: list[Mark] = []
        self._known: dict[int, Step] = {}
        self._last = 0

    def drive(self, life: TxRecord) -> TxRecord:
        """Let nobody else ask about the saga, and renew its lease."""
        self._owner.hold(self)
        self._kernel.running.drive(life.txid, life.owner)
        return life

    def opened(self) -> TxRecord:
        """Return the transaction record, opening one if there is none yet."""
        with self._lock:
            return self.drive(self._owner.open()) if self._owner.txid is None else self._owner.life

    def number(self) -> int:
        """Return the next step's number: steps are undone in reverse order of these."""
        with self._lock:
            self._last += 1
            return self._last

    def run(self, number: int, asked: RequestedStep) -> object:
        """Run a step to its end; return its result, which is written with the next call."""
        start = asked.start(number)
        with on_failure(self._drop, start):
            self.record(start)
            step = self._known[number] = _step(self._owner.life, start)
        output, told = self._acting.run(self._owner.life, number, asked, partial(self._fail, step))
        self._mark(StepEvent.FINISH, step._replace(state=StepState.DONE, left=Left.WORK, output=told))
        return output

    def record(self, start: Start) -> None:
        """Write a step and the results before it."""
        with self._lock:
            if self._owner.txid is None:
                self.drive(self._owner.begin(steps=[start]))
                return
            marks, self._marks = self._marks, []
        self._kernel.requests.call(RecordSteps(self._owner.life, [start], marks))

    def _drop(self, start: Start) -> None:
        """Note that a step never ran, because writing it failed: it may be written nevertheless."""
        if self._owner.txid is not None:
            never = _step(self._owner.life, start)
            self._known[start.number] = never._replace(left=Left.NOTHING, error="it did not begin")

    def _fail(self, step: Step, error: BaseException, left: Left) -> None:
        why = short_cause(f"{type(error).__name__}: {error}")
        self._mark(StepEvent.FAIL, step._replace(state=StepState.FAILED, left=left, error=why))

    def _mark(self, event: StepEvent, step: Step) -> None:
        with self._lock:
            self._known[step.number] = step
            self._marks.append(Mark(step.txid, step.attempt, step.number, event, step.left, step.output, step.error))

    def unknown(self) -> str:
        """Return which step failed and left nobody knows what; empty if none did."""
        for number, step in sorted(self._known.items()):
            if step.state is StepState.FAILED and step.left is not Left.NOTHING:
                return f"step {number} {step.name!r} failed, and its outcome is unknown ({step.error})"
        return ""

    def decide(self, decision: Decision, why: str, rows: Sequence[Row], after: Sequence[Start]) -> Decision:
        """Write the decision with the results and the steps after it; return the final one."""
        self.opened()
        with self._lock:
            marks, self._marks = self._marks, []
        return self._owner.decide(decision, why, rows, driver=self._kernel.member, steps=after, marks=marks)

    def go_on(self, decision: Decision, after: Sequence[Start]) -> None:
        """Do what is left after the decision."""
        life = self._owner.life
        steps = [*self._known.values(), *(_step(life, start) for start in after)]
        drive(self._kernel, ClaimedSaga.of(life, decision), steps)

    def leave(self) -> None:
        """Let others ask about the saga from here on."""
        self._owner.leave(self)
        if self._owner.txid is not None:
            self._kernel.running.leave(self._owner.txid, self._owner.life.owner)


def _step(life: TxRecord, start: Start) -> Step:
    """Return a step as the store keeps it; only the store knows the times."""
    step = Step(life.txid, start.number, life.owner, start.name, hold=Hold.COMMIT, kind=start.kind)
    step = step._replace(resource=start.resource, input=start.input)
    return step._replace(compensation=start.compensation, action=start.action)


def enter_key(kernel: Kernel, owner: Owner, patience: float = 0.0) -> TxRecord:
    """Open an owner's key with a record that has no steps yet; what earlier ones left is undone first (R6)."""
    while True:
        try:
            life = owner.enter(patience)
        except errors.NotCompensated as left:
            undo(kernel, left)
            continue
        if life.owner == 1 or not kernel.store.work.steps(life.txid):
            return life
        decision = owner.decide(Decision.ROLLBACK, "its key was entered again", driver=kernel.member)
        if decision is Decision.ROLLBACK:
            drive(kernel, ClaimedSaga.of(life, decision))


def undo(kernel: Kernel, left: errors.NotCompensated) -> None:
    """Undo what is left of an earlier record, unless another process is doing it."""
    with kernel.announce.around(facts.Claiming, left.txid):
        taken = kernel.store.work.claim(kernel.member, limit=1, txid=left.txid)
    if not taken:
        raise left
    (saga,) = taken
    drive(kernel, saga)


class Parallel:
    """Runs steps in parallel; the end of its block waits for them."""

    def __init__(self, steps: SagaSteps, threads: int) -> None:
        self._steps = steps
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txsaga-steps")
        self._failed = Event()
        self._running: list[Future[object]] = []

    def step(self, do: Doing, **options: Unpack[StepOptions]) -> Future[object]:
        """Start a step in parallel; return a future of its result."""
        wanted = asked(do, **options)
        future = self._pool.submit(self._one, self._steps.number(), wanted)
        self._running.append(future)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait for all of them; raise the first error, with the others as notes."""
        if error is not None:
            self._failed.set()
        self._pool.shutdown()
        raised = [found for each in self._running if (found := _raised(each)) is not None]
        if error is not None or not raised:
            return
        for other in raised[1:]:
            raised[0].add_note(f"another step: {type(other).__name__}: {other}")
        raise raised[0]

    def _one(self, number: int, asked: RequestedStep) -> object:
        if self._failed.is_set():
            raise CancelledError(f"step {asked.name!r} did not start: a parallel step failed")
        with on_failure(self._failed.set):
            return self._steps.run(number, asked)


def _raised(future: Future[object]) -> BaseException | None:
    error = future.exception()
    return None if isinstance(error, CancelledError) else error


LONGEST = timedelta(days=365)
THREADS = 8


class Later:
    """A step that runs once the saga is committed."""

    def __init__(self, kernel: Kernel, txid: Callable[[], int | None], number: int, name: str) -> None:
        self._kernel, self._txid, self.number, self.name = kernel, txid, number, name

    @property
    def done(self) -> bool:
        """Return whether it is done."""
        return self._found() is not None

    def result(self) -> object:
        """Return its result; `SagaError` while it is not done."""
        found = self._found()
        if found is None:
            raise errors.SagaError(f"step {self.name!r} is not done yet: it runs after the decision, until it is done")
        return json.loads(found)

    def _found(self) -> str | None:
        txid = self._txid()
        steps = [] if txid is None else self._kernel.store.work.steps(txid)
        found = next((step for step in steps if step.number == self.number), None)
        return (found.output or "null") if found is not None and found.state is StepState.DONE else None


class Saga(DecidedBlock):
    """One saga of a producer group, as a context manager."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, run: str | None) -> None:
        super().__init__(kernel, group, key)
        self._owner = Owner(kernel, group, key=key, run=run)
        self._steps = SagaSteps(kernel, self._owner)
        self._past_return, self._after = False, list[Start]()
        self._deadlines: list[tuple[float, str]] = []

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one: from its first step on."""
        return self._owner.txid

    def __enter__(self) -> Self:
        """Begin; with a key, refuse what is committed already, and first undo what failed under it before."""
        self._require_new()
        if self._key is not None:
            self._steps.drive(enter_key(self._kernel, self._owner))
        self._stage = BlockStage.OPEN
        return self

    def step(
        self,
        do: Doing,
        *,
        compensate: Doing | Undo | None = None,
        on: str | None = None,
        name: str | None = None,
        input: Mapping[str, object] | None = None,
        **times: Unpack[StepTimes],
    ) -> Any:  # what the step returns
        """Run a step now and return its result; after the point of no return, run it after COMMIT.

        A function gets its input as keyword arguments, after the connection of the resource given as `on`; a statement
        gets it as its parameters. `retries`, `timeout` and `pause` (before the second try) are for this step only.
        """
        self._require_open("begin a step")
        wanted = asked(do, compensate=compensate, on=on, name=name, input=input, **times)
        if not self._past_return:
            return self._steps.run(self._steps.number(), wanted)
        if compensate is not None:
            raise errors.ConfigError("after the point of no return nothing is undone; leave compensate= out")
        return self._later(wanted, times.get("retries"))

    if not TYPE_CHECKING:  # which finds a wrong name by itself
        __getattr__ = elsewhere(HELD)

    def parallel(self, threads: int = THREADS) -> Parallel:
        """Return a block that runs steps in parallel."""
        self._require_open("begin steps")
        check_count(threads, "threads")
        if self._past_return:
            raise errors.ConfigError("after the point of no return steps are done one by one; use saga.step")
        return Parallel(self._steps, threads)

    def reserve(
        self,
        do: Doing,
        *,
        confirm: Doing,
        cancel: Doing | Undo,
        expires: timedelta,
        on: str | None = None,
        name: str | None = None,
        input: Mapping[str, object] | None = None,
        **times: Unpack[StepTimes],
    ) -> Any:  # what the try returns
        """Try: reserve something that is confirmed after COMMIT, and cancelled after ROLLBACK.

        If the saga is not decided before it expires, the process that finds that rolls the saga back.
        """
        self._require_open("reserve")
        check_duration(expires, "expires", LONGEST)
        wanted = asked(do, compensate=cancel, on=on, name=name, input=input, expires=expires, **times)
        confirmed = asked(confirm, on=on, name=f"confirm {wanted.name}", input=input)
        until = time.monotonic() + expires.total_seconds()
        answer = self._steps.run(self._steps.number(), wanted)
        self._deadlines.append((until, wanted.name))
        self._later(confirmed, None, answer)
        return answer

    def no_return(self) -> None:
        """Run every step from here on only after COMMIT, and retry it until it is done."""
        self._require_open("pass the point of no return")
        self._past_return = True

    def join_life(self) -> TxRecord:
        """Return the transaction record, for binding effects to it."""
        self._require_open("consume")
        return self._steps.opened()

    def _release(self) -> None:
        self._steps.leave()

    def _leave(self, error: BaseException | None) -> None:
        if self._stage is BlockStage.OPEN and error is None:
            failure = self._failure()
            if failure is None:
                self._commit()
                return
            self._roll_back(str(failure))
            raise failure
        if self._stage in (BlockStage.OPEN, BlockStage.BROKEN):
            self._roll_back(f"the block raised {type(error).__name__}: {error}" if error else "it was broken")
            if error is None:
                raise errors.TransactionError("the saga did not commit: its messages could not all be stored")

    def _failure(self) -> errors.TxSagaError | None:
        """Return why it can't commit although its block ended without an error."""
        if self._outbox.overflowed:
            return errors.TransactionError(INCOMPLETE)
        if unknown := self._steps.unknown():
            return errors.SagaError(f"{unknown}; the saga rolls back")
        for until, name in self._deadlines:
            if time.monotonic() >= until:
                return errors.ReservationExpired(self.txid or 0, name)
        return None

    def _commit(self) -> None:
        if self.txid is None and not self._outbox.count and not self._after:
            self._stage = BlockStage.LEFT  # nothing was done, so nothing is decided
            return
        rows = self._outbox.take_whole()
        self._stage = BlockStage.CLOSED
        try:
            standing = self._decided(Decision.COMMIT, "the block ended", rows)
        except errors.UnknownTopic as reason:
            self._roll_back(str(reason))
            raise
        if standing is not Decision.COMMIT:
            raise errors.DecidedOtherwise(self._owner.life.txid, standing.name)

    def _roll_back(self, why: str) -> None:
        self._stage = BlockStage.BROKEN
        if self.txid is None:
            self._told(Decision.ROLLBACK)
        else:
            self._decided(Decision.ROLLBACK, short_cause(why))

    def _decided(self, decision: Decision, why: str, rows: Sequence[Row] = ()) -> Decision:
        """Decide, and see to the steps that are left: after COMMIT the later ones, after ROLLBACK the earlier ones."""
        after = self._after if decision is Decision.COMMIT else []
        standing = self._steps.decide(decision, why, rows, after)
        self._told(standing)
        if standing is Decision.ROLLBACK or after:
            self._steps.go_on(standing, after)
        return standing

    def _told(self, decision: Decision) -> None:
        self.decision, self._stage = decision, BlockStage.LEFT
        self._tell(decision)
        self._kernel.tell_decided()

    def _later(self, wanted: RequestedStep, retries: int | None, output: object = None) -> Later:
        """Keep a step to be written with the decision."""
        number, action = self._steps.number(), wanted.later(retries, output)
        self._after.append(wanted.start(number)._replace(action=action.written()))
        return Later(self._kernel, lambda: self.txid, number, wanted.name)

    def _store(self, rows: Sequence[Row]) -> None:
        self._steps.opened()
        self._owner.add(rows)
