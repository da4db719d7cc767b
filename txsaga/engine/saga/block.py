"""
A saga: steps that commit one by one, and are undone one by one where the saga fails.

    with broker.saga("travel", key="trip-7") as saga:
        saga.step(debit, on="bank", compensate=refund, input={"account": 7, "amount": 100})
        with saga.parallel() as together:
            together.step(book_flight, on="flights", compensate=cancel_flight, input={…})
            together.step(Http("https://hotels.example/book"), compensate=Http("https://hotels.example/cancel"))
        saga.send("trips", b"trip 7 is booked")
        saga.no_return()
        saga.step(mail_ticket, input={"trip": 7})

Each step is written down before it runs, with its input and what undoes it. Leaving the block decides in ONE commit of
the home database, messages included:

    no exception             COMMIT; then what stands behind the point of no return is done until it is done
    exception in the block   ROLLBACK; then the steps are undone in the reverse order of their start; then it comes out
    this process dies        ROLLBACK by another process once its lease is over, which undoes them (R6)

A step that raised and was caught is no failure of the saga, as long as it is known to have left nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from txsaga.engine.consuming import Consumed, consume
from txsaga.engine.gathering import FLUSH, Gathering
from txsaga.engine.kernel import Kernel
from txsaga.engine.outbox import INCOMPLETE
from txsaga.engine.processes import this_process
from txsaga.engine.received import Received
from txsaga.engine.saga.asking import asked
from txsaga.engine.saga.behind import Behind, Later
from txsaga.engine.saga.driver import Driver
from txsaga.engine.saga.entering import enter
from txsaga.engine.saga.forward import Forward
from txsaga.engine.saga.naming import Doing, name_of
from txsaga.engine.saga.owner import Owner
from txsaga.engine.saga.parallel import Parallel
from txsaga.engine.saga.patience import patience
from txsaga.engine.stage import Stage
from txsaga.errors import ConfigError, DecidedOtherwise, TransactionError, TxSagaError
from txsaga.errors.saga import ReservationExpired, SagaError
from txsaga.model.arguments import check_count, check_duration
from txsaga.model.dead_letter import short_cause
from txsaga.model.decision import Decision
from txsaga.model.layout import Batch
from txsaga.model.records import Group, Life
from txsaga.model.saga import Claimed, Undo
from txsaga.model.step import Left

logger = logging.getLogger("txsaga")

LONGEST = timedelta(days=365)
THREADS = 8


class Saga(Gathering):
    """One saga of a producer group, as a context manager."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, run: str | None) -> None:
        super().__init__(kernel)
        self._stage = Stage.NEW
        self._owner = Owner(kernel, group, key=key, run=run)
        self._forward, self._behind = Forward(kernel, self._owner), Behind()
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
        """Begin; with a key, refuse what it already did, and undo to its end what failed under it before."""
        self._require_new()
        enter(self._kernel, self._owner)
        self._stage = Stage.OPEN
        return self

    def step(
        self,
        do: Doing,
        *,
        compensate: Doing | Undo | None = None,
        on: str | None = None,
        name: str | None = None,
        input: Mapping[str, object] | None = None,
        **times: Any,  # noqa: ANN401  # retries, timeout, pause
    ) -> Any:  # noqa: ANN401  # what the step returns
        """Do a step now, and return what it returns; behind the point of no return, do it once COMMIT stands.

        A function gets its input as keyword arguments, behind the connection of the resource that it works `on`; a
        statement gets it as its values. `retries`, `timeout` and `pause` (before the second try) are its own.
        """
        self._require_open("begin a step")
        if not self._behind.reached:
            wanted = asked(do, compensate=compensate, on=on, name=name, input=input, **times)
            return self._forward.run(self._owner.number(), wanted)
        if compensate is not None:
            raise ConfigError("behind the point of no return nothing is undone; leave compensate= out")
        return self._later(do, name=name, on=on, input=input or {}, **{"retries": None, **times})

    def parallel(self, threads: int = THREADS) -> Parallel:
        """Do steps beside each other, in a block of their own."""
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
        **times: Any,  # noqa: ANN401  # retries, timeout, pause
    ) -> Any:  # noqa: ANN401  # what the try returns
        """Try: reserve something that is confirmed behind COMMIT, and cancelled behind ROLLBACK.

        It is given up when the saga is not decided before it expires: whoever finds that rolls the saga back.
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
        """Let every step from here on be one that is only done once COMMIT stands, and then until it is done."""
        self._require_open("pass the point of no return")
        self._behind.reached = True

    def consume(self, consumed: Consumed | Received, batch: Batch | None = None) -> None:
        """Let COMMIT take a message off its group, or move a stream's cursor behind a chunk."""
        self._require_open("consume")
        consume(self, consumed, batch)

    def join_life(self) -> Life:
        """Return the transaction's row, for what is bound to it."""
        self._require_open("consume")
        return self._owner.opened()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide, and drive it to its end; what the block raised comes out of it, whatever becomes of the saga."""
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
        if self._stage is Stage.OPEN and error is None:
            failure = self._failure()
            if failure is None:
                self._commit()
                return
            self._roll_back(str(failure))
            raise failure
        if self._stage in (Stage.OPEN, Stage.BROKEN):
            self._roll_back(f"the block raised {type(error).__name__}: {error}" if error else "it was broken")
            if error is None:
                raise TransactionError("the saga did not commit: its messages could not all be stored")

    def _failure(self) -> TxSagaError | None:
        """Say why it can't commit although its block ended without an error."""
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
            self._stage = Stage.LEFT  # nothing was done: nothing is decided
            return
        rows, behind = self._outbox.take_whole(), self._behind.steps
        self._stage = Stage.CLOSED
        standing, saga = self._owner.decide(Decision.COMMIT, "the block ended", rows, behind)
        self._told(standing)
        if standing is not Decision.COMMIT:
            self._drive(saga)
            raise DecidedOtherwise(saga.txid, standing.name)
        if behind:
            self._drive(saga)

    def _roll_back(self, why: str) -> None:
        self._stage = Stage.BROKEN
        if self._owner.life is None:
            self._told(Decision.ROLLBACK)
            return
        standing, saga = self._owner.decide(Decision.ROLLBACK, short_cause(why))
        self._told(standing)
        if standing is Decision.ROLLBACK:
            self._drive(saga)

    def _drive(self, saga: Claimed) -> None:
        behind = self._behind.steps if saga.decision is Decision.COMMIT else ()
        Driver(self._kernel, saga, patience()).drive(self._owner.records(behind))

    def _told(self, decision: Decision) -> None:
        self.decision, self._stage = decision, Stage.LEFT
        self._tell(decision)
        self._kernel.tell_decided()

    def _later(self, do: Doing, name: str | None, **more: Any) -> Later:  # noqa: ANN401  # of an action
        number, called = self._owner.number(), name or name_of(do)
        self._behind.add(number, do, called, **more)
        return Later(self._kernel, lambda: self.txid, number, called)

    def _flush(self) -> None:
        if self._outbox.bytes > FLUSH:
            try:
                self._owner.add(self._outbox.take_whole())
            except BaseException:
                self._stage = Stage.BROKEN
                raise

    def _require_open(self, what: str) -> None:
        self._require_ours()
        self._stage.require_open(what, self.txid)

    def _require_ours(self) -> None:
        if self._process != this_process():
            raise TransactionError("a forked child has nothing of its parent's block; open another with broker.saga(…)")
