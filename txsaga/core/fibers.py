"""
How blocking code waits: in a thread the thread sleeps; within an event loop only the task is suspended.

The core's blocking code is written once, for threads. Within a loop the same code runs on a stack of its own, a fiber,
which is suspended wherever the code would wait: for an answer, or for a thread that runs what can't be suspended. A
call that was handed over can't be withdrawn, so a task that is cancelled meanwhile gets the answer first; the code that
suspended the fiber raises the cancellation afterwards. Without this, a block could exit without knowing that its half
message is stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from txsaga.core.forking import at_fork

T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)

THREADS = 32
"""Blocking calls at the same time; others wait for their turn."""


class Handed(Protocol[Answer]):
    """A call that was handed over; it is awaited again after each cancellation of its task."""

    def __await__(self) -> Generator[Any, None, Answer]: ...

    def cancelled(self) -> bool:
        """Return whether it was withdrawn."""


Await = Callable[[Awaitable[Any]], Any]
"""Suspends the running fiber until an awaitable is done."""


class Fiber:
    """One stack within a loop: how it waits, and whether its task was cancelled meanwhile.

    Work on an `unbroken` fiber runs to its end.
    """

    __slots__ = ("cancelled", "unbroken", "wait")

    def __init__(self, wait: Await, unbroken: bool = False) -> None:
        self.wait, self.unbroken = wait, unbroken
        self.cancelled: CancelledError | None = None

    def moment(self, something: Awaitable[object]) -> None:
        """Wait until `something` is done or the task is cancelled, possible in each turn; the caller checks which."""
        try:
            self.wait(something)
        except CancelledError as cancelled:
            self.cancelled = cancelled

    def wait_for(self, call: Handed[T]) -> T:
        """Wait for the answer of a call that can't be withdrawn."""
        while True:
            try:
                return self.wait(asyncio.shield(call) if isinstance(call, asyncio.Future) else call)  # type: ignore[no-any-return]
            except CancelledError as cancelled:
                if call.cancelled():
                    raise
                self.cancelled = cancelled


class _Running(threading.local):
    fiber: Fiber | None = None


_running = _Running()


def _start_anew() -> None:
    """Start without threads and without a loop, as a forked child must."""
    global _threads  # our own: all threads of the loop may be busy with work that waits for us
    _threads = ThreadPoolExecutor(THREADS, thread_name_prefix="txsaga-away")
    _running.fiber = None


_threads: ThreadPoolExecutor
_start_anew()
at_fork(_start_anew)


def current_fiber() -> Fiber | None:
    """Return the fiber that this code runs on; None in a thread, and for a task's own code."""
    return _running.fiber


def loops() -> bool:
    """Return whether a loop runs in this thread: code that blocks here stops the whole loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def on(fiber: Fiber, go_on: Callable[..., T], *given: object) -> T:
    """Resume a fiber until it is suspended again; the code that it calls waits as it does."""
    before, _running.fiber = _running.fiber, fiber
    try:
        return go_on(*given)
    finally:
        _running.fiber = before


def raise_if_cancelled() -> None:
    """Raise a cancellation that came while nothing could be withdrawn, before work starts that no caller wants."""
    fiber = current_fiber()
    if fiber is not None and fiber.cancelled is not None and not fiber.unbroken:
        cancelled, fiber.cancelled = fiber.cancelled, None
        raise cancelled


def run_blocking(work: Callable[[], T]) -> T:
    """Run blocking code: here, or within a loop in a thread."""
    return work() if current_fiber() is None else sent_away(work)()


def sent_away(work: Callable[[], T]) -> Callable[[], T]:
    """Start blocking code of a loop's task in a thread; the returned function waits for it."""
    fiber = current_fiber()
    assert fiber is not None
    begun = asyncio.get_running_loop().run_in_executor(_threads, copy_context().run, work)
    return lambda: fiber.wait_for(begun)


def pause(seconds: float) -> None:
    """Let some time pass."""
    if (fiber := current_fiber()) is None:
        time.sleep(seconds)
    else:
        fiber.wait_for(asyncio.ensure_future(asyncio.sleep(seconds)))


class Loops(Protocol):
    """Runs blocking code on a fiber, which is suspended wherever the code would wait."""

    def __call__(self, work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
        """Run some work to its end; a task that was cancelled meanwhile is cancelled afterwards.

        Code that reacts to a cancellation half-way, such as a driver's, ignores it in `unbroken` work.
        """
