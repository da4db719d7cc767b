"""
How code that blocks waits: its thread sleeps, or, within an event loop, only its task does.

The blocks of the core are written once, for threads. Within a loop the same code runs on a stack of its own, which is
put aside wherever it would wait: for an answer that is on its way, or for a thread that does what can't be put aside.
What was handed over can't be withdrawn, so a task that is cancelled meanwhile hears the answer first; whoever put the
stack aside raises the cancellation afterwards. If that were left out, a block could leave with its half stored and not
know of it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)

THREADS = 32
"""So much may block at once; the rest waits for its turn."""


class Handed(Protocol[Answer]):
    """A call that was handed over, and is awaited as often as its task is cancelled."""

    def __await__(self) -> Generator[Any, None, Answer]:
        """Wait for the answer."""

    def cancelled(self) -> bool:
        """Tell whether it was withdrawn."""


Await = Callable[[Awaitable[Any]], Any]
"""Puts the running stack aside until something is there."""


class Fiber:
    """One stack within a loop: how it waits, and whether its task was cancelled meanwhile.

    What is done on one that is `unbroken` is done to its end.
    """

    __slots__ = ("cancelled", "unbroken", "wait")

    def __init__(self, wait: Await, unbroken: bool = False) -> None:
        self.wait, self.unbroken = wait, unbroken
        self.cancelled: CancelledError | None = None

    def moment(self, something: Awaitable[object]) -> None:
        """Wait until something is there, or the task is cancelled, as it may be in each turn: the caller looks."""
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


class _Pool:
    """Threads of our own: those of the loop may all be at work for what waits for us."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Have no threads yet, as a forked child must."""
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="txsaga-away")


_pool = _Pool()


class _Running(threading.local):
    aside: Fiber | None = None


_running = _Running()


def _start_anew() -> None:
    _pool.start_anew()
    _running.aside = None  # no loop runs in a forked child


os.register_at_fork(after_in_child=_start_anew)


def current_fiber() -> Fiber | None:
    """Return the stack that this runs on; None in a thread, and for a task's own code."""
    return _running.aside


def loops() -> bool:
    """Tell whether a loop runs in this thread: what blocks here stops all that it does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def on(aside: Fiber, go_on: Callable[..., T], *given: object) -> T:
    """Let a stack go on until it is put aside again; what it calls waits as it does."""
    before, _running.aside = _running.aside, aside
    try:
        return go_on(*given)
    finally:
        _running.aside = before


def raise_if_cancelled() -> None:
    """Raise the cancellation that came while nothing could be withdrawn: what follows would be begun for nobody."""
    aside = current_fiber()
    if aside is not None and aside.cancelled is not None and not aside.unbroken:
        cancelled, aside.cancelled = aside.cancelled, None
        raise cancelled


def run_blocking(work: Callable[[], T]) -> T:
    """Do what blocks: here, or within a loop in a thread."""
    return work() if current_fiber() is None else sent_away(work)()


def sent_away(work: Callable[[], T]) -> Callable[[], T]:
    """Begin within a loop what blocks, in a thread; the function that is returned waits for it."""
    aside = current_fiber()
    assert aside is not None
    begun = asyncio.get_running_loop().run_in_executor(_pool.threads, copy_context().run, work)
    return lambda: aside.wait_for(begun)


def pause(seconds: float) -> None:
    """Let some time pass."""
    aside = current_fiber()
    if aside is None:
        time.sleep(seconds)
    else:
        aside.wait_for(asyncio.ensure_future(asyncio.sleep(seconds)))


class Loops(Protocol):
    """Runs code that blocks on a stack of its own, which is put aside wherever it would wait."""

    def __call__(self, work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
        """Do some work to its end; a task that was cancelled meanwhile is told so behind it.

        What heeds a cancellation half-way, as drivers do, heeds none in work that is `unbroken`.
        """
