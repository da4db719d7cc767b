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
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token, copy_context
from typing import Any, TypeVar

from txsaga.engine.pending import Pending

T = TypeVar("T")

Await = Callable[[Awaitable[Any]], Any]
"""Puts the running stack aside until something is there."""


class Aside:
    """One stack within a loop: how it waits, and whether its task was cancelled meanwhile."""

    __slots__ = ("cancelled", "wait")

    def __init__(self, wait: Await) -> None:
        self.wait = wait
        self.cancelled: CancelledError | None = None

    def until(self, call: Pending[T] | asyncio.Future[T]) -> T:
        """Wait for the answer of a call that can't be withdrawn."""
        while True:
            try:
                return self.wait(asyncio.shield(call) if isinstance(call, asyncio.Future) else call)  # type: ignore[no-any-return]
            except CancelledError as cancelled:
                if call.cancelled():
                    raise
                self.cancelled = cancelled


_stack: ContextVar[Aside | None] = ContextVar("txsaga_stack", default=None)


def stack() -> Aside | None:
    """Return the stack of a loop that runs here; None in a thread of its own."""
    return _stack.get()


def put(aside: Aside) -> Token[Aside | None]:
    """Let what is called from here on wait as a stack of a loop does, until it is taken off."""
    return _stack.set(aside)


def taken_off(token: Token[Aside | None]) -> None:
    """Wait as before."""
    _stack.reset(token)


def away(work: Callable[[], T]) -> T:
    """Do what blocks: here, or within a loop in a thread."""
    aside = _stack.get()
    if aside is None:
        return work()
    return aside.until(in_thread(work))


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Begin something in a thread of the running loop's, where it waits as threads do."""
    context = copy_context()
    context.run(_stack.set, None)
    return asyncio.get_running_loop().run_in_executor(None, context.run, work)
