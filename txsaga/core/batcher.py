"""
Group commit: many callers, one durable statement.

While one batch is in flight the next one gathers; there is no timer. A lone caller runs its own batch in its own thread
(`call`), so it pays no hand-over; callers that can't block use `submit` and get a future.

* One batch is in flight at a time, so calls are stored in order of arrival.
* A batch that fails as a whole is run again item by item: one bad item never fails the others. `run` reads back before
  it raises; where even that finds no answer, `OutcomeUnknown` prevents the second try.
* The queue is bounded. A caller waits `patience` seconds for a place, then gets `StoreBusy`.
* A batch is bounded, by count and by weight: a statement that the server refuses would be sent again and again.
* Callers are answered outside the turn, so that a callback may call again.
* After a fork the child starts with an empty queue: the parent's calls belong to the parent.

If a batch never runs (the process dies), its callers were never answered and nothing of it is visible.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from txsaga.core.batch_future import BatchFuture, wake
from txsaga.core.failure import on_failure
from txsaga.core.fibers import current_fiber, pause, raise_if_cancelled
from txsaga.core.forking import at_fork
from txsaga.errors import BrokerClosed, OutcomeUnknown, StoreBusy, StoreUnavailable, TxSagaError

Item = TypeVar("Item")

Answer = TypeVar("Answer")

FEW = 32
"""Up to this many calls form one batch. Of more, half do: their callers go on while the other half is at the server."""

logger = logging.getLogger("txsaga")

_alive: weakref.WeakSet[Batcher[object, object]] = weakref.WeakSet()


class Batcher(Generic[Item, Answer]):
    """Runs calls in batches, one batch at a time, in order of arrival."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Item]], Sequence[Answer | TxSagaError]],
        *,
        limit: int = 512,
        weigh: Callable[[Item], int] = lambda _: 0,
        weight: int = 16 * 1024 * 1024,
        capacity: int = 20_000,
        patience: float = 30.0,
    ) -> None:
        self.name = name
        self._run = run
        self._limit, self._weigh, self._weight = limit, weigh, weight
        self._capacity = capacity
        self._patience = patience
        self.reset()
        _alive.add(self)  # type: ignore[arg-type]  # only ever reset

    def submit(self, item: Item) -> BatchFuture[Answer]:
        """Queue a call and return its future; the batch runs in the batcher's own thread."""
        if self._worker is None:
            self._start_worker()  # if this fails, nothing was queued
        call = self._enqueue(item)
        if not self._worker_awake:
            self._wake_worker()
        return call

    def call(self, item: Item) -> Answer:
        """Run a call to its end: in this thread when no other call is running."""
        if (fiber := current_fiber()) is not None:
            return fiber.wait_for(self.submit(item))
        if threading.current_thread() is self._worker:
            with self._turn:  # a callback of a finished call: no other thread would ever run this one
                return self._alone(item)
        # While the worker runs, no caller takes the turn: each hand-over costs a thread switch.
        if not self._waiting and not self._worker_awake:
            try:
                if self._turn.acquire(blocking=False):
                    return self._alone(item)
            finally:  # a signal handler may raise after the lock is taken, before `acquire` has returned
                try:
                    self._turn.release()
                except RuntimeError:
                    pass  # another thread's
        return self.submit(item).result()

    def close(self) -> None:
        """Finish what is queued and stop the thread; refuse later calls."""
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            self._signal()
            worker.join()
        with self._turn:  # also waits for a lone caller
            while batch := self._gathered():
                self._finish(batch, self._answers([item for item, _ in batch]))

    def reset(self) -> None:
        """Start empty, as a forked child must: threads and calls belong to the parent."""
        self._waiting: deque[tuple[Item, BatchFuture[Answer]]] = deque()
        self._turn, self._lock = threading.RLock(), threading.Lock()  # an RLock knows its owner
        self._asleep = threading.Lock()  # held while nothing was signalled: cheaper than a semaphore, once per batch
        self._asleep.acquire()
        self._worker: threading.Thread | None = None
        self._worker_awake = self._closed = False

    def _alone(self, item: Item) -> Answer:
        if self._closed:
            raise BrokerClosed
        (answer,) = self._answers([item])
        if self._waiting:
            self._wake_worker()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _enqueue(self, item: Item) -> BatchFuture[Answer]:
        if len(self._waiting) >= self._capacity:
            self._wait_for_room()
        call: BatchFuture[Answer] = BatchFuture()
        with self._lock:
            if self._closed:
                raise BrokerClosed
            self._waiting.append((item, call))
        return call

    def _wait_for_room(self) -> None:
        end, fiber = time.monotonic() + self._patience, current_fiber()
        cancelled = fiber and fiber.cancelled
        while len(self._waiting) >= self._capacity:
            if time.monotonic() > end:
                raise StoreBusy(
                    f"the queue of {self.name} was full for {self._patience:g} s ({self._capacity:,} calls wait); "
                    "send less, or retry later"
                )
            self._wake_worker()
            pause(0.002)
            if fiber is not None and fiber.cancelled is not cancelled:
                raise_if_cancelled()  # nothing was handed over yet

    def _start_worker(self) -> None:
        with self._lock:
            if self._worker is None and not self._closed:
                worker = threading.Thread(target=self._work, name=f"txsaga-{self.name}", daemon=True)
                worker.start()
                self._worker = worker

    def _wake_worker(self) -> None:
        with self._lock:
            if not self._worker_awake:
                # After an error of a signal handler: no caller wakes a worker that counts as awake.
                with on_failure(setattr, self, "_worker_awake", False):
                    self._worker_awake = True
                    self._signal()

    def _signal(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:
            pass  # it was signalled already

    def _work(self) -> None:
        with self._lock:  # a signal handler may have raised in the starter before it stored the worker
            self._worker = self._worker or threading.current_thread()
        if self._worker is not threading.current_thread():
            return
        while True:
            self._asleep.acquire()
            while True:
                self._worker_awake = True
                while self._waiting:
                    with self._turn:
                        batch = self._gathered()
                        answers = self._answers([item for item, _ in batch])
                    self._finish(batch, answers)
                self._worker_awake = False
                if not self._waiting:
                    break
            if self._closed:
                return

    def _gathered(self) -> list[tuple[Item, BatchFuture[Answer]]]:
        return [self._waiting.popleft() for _ in range(self._fitting())]

    def _fitting(self) -> int:
        """Return how many calls form the next batch: at most `limit`, and at most `weight` unless one alone is more."""
        waiting = self._waiting
        weight, most = 0, min(len(waiting), self._limit, max(FEW, len(waiting) // 2))
        for at in range(most):
            weight += self._weigh(waiting[at][0])
            if weight > self._weight and at:
                return at
        return most

    def _answers(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        try:
            answers = self._run(items)
        except BaseException as failure:  # noqa: BLE001  # any exception belongs to the waiting callers
            if len(items) == 1 or isinstance(failure, OutcomeUnknown) or not isinstance(failure, Exception):
                return [failure] * len(items)
            return self._one_by_one(items)
        if len(answers) != len(items):
            return [OutcomeUnknown(f"{self.name}: {len(items)} calls had {len(answers)} answers")] * len(items)
        return answers

    def _one_by_one(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        answers: list[Answer | BaseException] = []
        for item in items:
            answers += self._answers([item])
            if len(answers) > 1 and all(isinstance(answer, StoreUnavailable) for answer in answers[-2:]):
                break  # one item may wait for a lock; two in a row mean that the store does not answer
        return answers + answers[-1:] * (len(items) - len(answers))

    def _finish(self, batch: list[tuple[Item, BatchFuture[Answer]]], answers: Sequence[Answer | BaseException]) -> None:
        for (_, call), answer in zip(batch, answers, strict=True):
            try:
                if isinstance(answer, BaseException):
                    call.set_exception(answer)
                else:
                    call.set_result(answer)
            except BaseException:  # a callback that raises `SystemExit` ends only itself here
                logger.exception("%s: a callback failed", self.name)
        wake(call for _, call in batch)


def _reset_after_fork() -> None:
    for batcher in list(_alive):
        batcher.reset()


at_fork(_reset_after_fork)
