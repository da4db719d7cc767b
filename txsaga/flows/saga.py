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

A step that raised and was caught does not fail the saga if it is known to have left nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Event
from types import TracebackType
from typing import Any, Self, Unpack

from txsaga.consume.dead_letter import short_cause
from txsaga.consume.delivery import Consumed, Delivery, consume
from txsaga.core import facts
from txsaga.core.arguments import check_count, check_duration
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.forking import this_process
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.records import Group, TxRecord
from txsaga.core.stored_json import as_json
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    NotCompensated,
    ReservationExpired,
    SagaError,
    TransactionError,
    TxSagaError,
)
from txsaga.flows.calls import Start
from txsaga.flows.saga_code import Doing, action_of, name_of
from txsaga.flows.saga_driver import SagaDriver
from txsaga.flows.saga_owner import SagaOwner
from txsaga.flows.saga_step import RequestedStep, StepOptions, StepRunner, asked, patience
from txsaga.flows.saga_values import ClaimedSaga, StepTimes, Undo
from txsaga.flows.step import Left, StepState
from txsaga.messages.message_buffer import FLUSH, INCOMPLETE, MessageBuffer
from txsaga.messages.stored_block import BlockStage


def enter(kernel: Kernel, owner: SagaOwner) -> None:
    """Open the owner's key with a record that has no steps yet; what earlier ones left is undone first."""
    while True:
        try:
            owner.enter()
        except NotCompensated as left:
            undo(kernel, left)
            continue
        life = owner.life
        steps = kernel.store.steps.of(life.txid) if life is not None and life.owner > 1 else ()
        if not steps:
            return
        why = "its key was entered anew"
        standing, saga = owner.decide(Decision.ROLLBACK, why)
        if standing is Decision.ROLLBACK:
            SagaDriver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))
        owner.leave()


def undo(kernel: Kernel, left: NotCompensated) -> None:
    """Undo what is left of an earlier record, unless another process is doing it."""
    with kernel.announce.around(facts.Claiming, left.txid):
        taken = kernel.store.steps.claim(kernel.member, limit=1, txid=left.txid)
    if not taken:
        raise left
    (saga,) = taken
    SagaDriver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))


class Parallel:
    """Runs steps in parallel; the end of its block waits for them."""

    def __init__(
        self,
        asked: Callable[..., RequestedStep],
        number: Callable[[], int],
        run: Callable[[int, RequestedStep], object],
        threads: int,
    ) -> None:
        self._asked, self._number, self._run = asked, number, run
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="txsaga-steps")
        self._failed = Event()
        self._running: list[Future[object]] = []

    def step(self, do: Doing, **options: Unpack[StepOptions]) -> Future[object]:
        """Start a step in parallel; return a future of its result."""
        asked = self._asked(do, **options)
        future = self._pool.submit(self._one, self._number(), asked)
        self._running.append(future)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all of them; raise the first error, with the others as notes."""
        if error is not None:
            self._failed.set()
        wait(self._running)
        self._pool.shutdown()
        errors = [raised for each in self._running if (raised := _raised(each)) is not None]
        if error is not None or not errors:
            return
        for other in errors[1:]:
            errors[0].add_note(f"beside it: {type(other).__name__}: {other}")
        raise errors[0]

    def _one(self, number: int, asked: RequestedStep) -> object:
        if self._failed.is_set():
            raise CancelledError(f"step {asked.name!r} did not begin: one beside it failed")
        with on_failure(self._failed.set):
            return self._run(number, asked)


def _raised(future: Future[object]) -> BaseException | None:
    error = future.exception()
    return None if isinstance(error, CancelledError) else error


logger = logging.getLogger("txsaga")

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
            raise SagaError(f"step {self.name!r} is not done yet: it runs behind the decision, until it is done")
        return json.loads(found)

    def _found(self) -> str | None:
        txid = self._txid()
        steps = [] if txid is None else self._kernel.store.steps.of(txid)
        found = next((step for step in steps if step.number == self.number), None)
        return (found.output or "null") if found is not None and found.state is StepState.DONE else None


class PostCommit:
    """The steps after the point of no return."""

    def __init__(self) -> None:
        self.reached = False
        self.steps: list[Start] = []

    def add(
        self,
        number: int,
        do: Doing,
        name: str,
        *,
        on: str | None,
        input: Mapping[str, object],
        options: Mapping[str, object] | None = None,
        **times: Any,  # fields of an action
    ) -> None:
        """Keep a step to be written with the decision."""
        action = action_of(do, on, **times)
        if options:
            action = action.with_options(options)
        kept = as_json(dict(input), f"the input of step {name!r}")
        self.steps.append(Start(number, name, action.kind, action.resource, kept, None, action.written()))


class Saga(MessageBuffer):
    """One saga of a producer group, as a context manager."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, run: str | None) -> None:
        super().__init__(kernel)
        self._stage = BlockStage.NEW
        self._owner = SagaOwner(kernel, group, key=key, run=run)
        self._forward, self._behind = StepRunner(kernel, self._owner), PostCommit()
        self._deadlines: list[tuple[float, str]] = []
        self._process = this_process()
        self.decision: Decision | None = None

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one: from its first step on."""
        return None if self._owner.life is None else self._owner.life.txid

    @property
    def id(self) -> str | None:
        """The id that names store and transaction, once there is one."""
        return None if self.txid is None else self._kernel.store.registry.identity.transaction(self.txid)

    def __enter__(self) -> Self:
        """Begin; with a key, refuse what is committed already, and first undo what failed under it before."""
        self._require_new()
        enter(self._kernel, self._owner)
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
        if not self._behind.reached:
            wanted = asked(do, compensate=compensate, on=on, name=name, input=input, **times)
            return self._forward.run(self._owner.number(), wanted)
        if compensate is not None:
            raise ConfigError("behind the point of no return nothing is undone; leave compensate= out")
        return self._later(do, name=name, on=on, input=input or {}, **{"retries": None, **times})

    def parallel(self, threads: int = THREADS) -> Parallel:
        """Return a block that runs steps in parallel."""
        self._require_open("begin steps")
        check_count(threads, "threads")
        if self._behind.reached:
            raise ConfigError("behind the point of no return steps are done one after the other; use saga.step")
        return Parallel(asked, self._owner.number, self._forward.run, threads)

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
        until = time.monotonic() + expires.total_seconds()
        number = self._owner.number()
        answer = self._forward.run(number, wanted)
        self._deadlines.append((until, wanted.name))
        options = {"output": answer}
        self._later(confirm, f"confirm {wanted.name}", on=on, input=wanted.input, options=options, retries=None)
        return answer

    def no_return(self) -> None:
        """Run every step from here on only after COMMIT, and retry it until it is done."""
        self._require_open("pass the point of no return")
        self._behind.reached = True

    def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Let COMMIT ack a message for its group, or move a stream's cursor past a chunk."""
        self._require_open("consume")
        consume(self, consumed, batch)

    def join_life(self) -> TxRecord:
        """Return the transaction record, for binding effects to it."""
        self._require_open("consume")
        return self._owner.opened()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide, and drive the saga to its end; the block's exception is raised in any case."""
        if self._process != this_process():
            if error is None:
                self._require_ours()
            return
        try:
            with self._leaving(error):
                self._leave(error)
        finally:
            self._owner.leave()

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
                raise TransactionError("the saga did not commit: its messages could not all be stored")

    def _failure(self) -> TxSagaError | None:
        """Return why it can't commit although its block ended without an error."""
        if self._outbox.overflowed:
            return TransactionError(INCOMPLETE)
        for number, step in self._owner.steps.items():
            if step.start is not None and step.failed and step.left is not Left.NOTHING:
                return SagaError(
                    f"step {number} {step.start.name!r} failed, and what it left is not known ({step.error}); "
                    "the saga rolls back"
                )
        for until, name in self._deadlines:
            if time.monotonic() >= until:
                return ReservationExpired(self.txid or 0, name)
        return None

    def _commit(self) -> None:
        if self._owner.life is None and not self._outbox.count and not self._behind.steps:
            self._stage = BlockStage.LEFT  # nothing was done, so nothing is decided
            return
        rows, behind = self._outbox.take_whole(), self._behind.steps
        self._stage = BlockStage.CLOSED
        standing, saga = self._owner.decide(Decision.COMMIT, "the block ended", rows, behind)
        self._told(standing)
        if standing is not Decision.COMMIT:
            self._drive(saga)
            raise DecidedOtherwise(saga.txid, standing.name)
        if behind:
            self._drive(saga)

    def _roll_back(self, why: str) -> None:
        self._stage = BlockStage.BROKEN
        if self._owner.life is None:
            self._told(Decision.ROLLBACK)
            return
        standing, saga = self._owner.decide(Decision.ROLLBACK, short_cause(why))
        self._told(standing)
        if standing is Decision.ROLLBACK:
            self._drive(saga)

    def _drive(self, saga: ClaimedSaga) -> None:
        behind = self._behind.steps if saga.decision is Decision.COMMIT else ()
        SagaDriver(self._kernel, saga, patience()).drive(self._owner.records(behind))

    def _told(self, decision: Decision) -> None:
        self.decision, self._stage = decision, BlockStage.LEFT
        self._tell(decision)
        self._kernel.tell_decided()

    def _later(self, do: Doing, name: str | None, **more: Any) -> Later:  # fields of an action
        number, called = self._owner.number(), name or name_of(do)
        self._behind.add(number, do, called, **more)
        return Later(self._kernel, lambda: self.txid, number, called)

    def _flush(self) -> None:
        if self._outbox.bytes > FLUSH:
            with on_failure(self._break):
                self._owner.add(self._outbox.take_whole())

    def _break(self) -> None:
        self._stage = BlockStage.BROKEN

    def _require_open(self, what: str) -> None:
        self._require_ours()
        self._stage.require_open(what, self.txid)

    def _require_ours(self) -> None:
        if self._process != this_process():
            raise TransactionError("a forked child has nothing of its parent's block; open another with broker.saga(…)")
