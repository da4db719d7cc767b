"""
Fibers within an event loop: greenlets as SQLAlchemy's asynchronous engines use them.

Code that runs on one may use such an engine like an ordinary one. An idle stack is kept for reuse: creating one costs
ten times as much as switching to it. Without them, every block would have to be written a second time for loops.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet
from sqlalchemy.util import await_only

from txsaga.core.fibers import Fiber, on

T = TypeVar("T")

KEPT = 256
"""Idle stacks that a thread keeps."""


class Done:
    """The result of some work. It is taken out once: an idle stack must not keep alive what its last work held."""

    __slots__ = ("error", "value")

    def __init__(self, value: object, error: BaseException | None = None) -> None:
        self.value, self.error = value, error

    def take(self) -> tuple[Any, BaseException | None]:
        """Take the result out."""
        taken = self.value, self.error
        self.value = self.error = None
        return taken


class Stack(greenlet):
    """One stack, which runs one work after the other."""

    __sqlalchemy_greenlet_provider__ = True

    def __init__(self) -> None:
        super().__init__(_do_each)
        self.switch()


class _IdleStacks(threading.local):
    def __init__(self) -> None:
        self.stacks: list[Stack] = []


_idle = _IdleStacks()


async def run(work: Callable[[], T], *, unbroken: bool = False) -> T:
    """Run some work to its end, suspending only the task; a cancellation it did not see is raised afterwards."""
    aside, stacks, here = Fiber(await_only, unbroken), _idle.stacks, getcurrent()
    stack = stacks.pop() if stacks else Stack()
    stack.parent, stack.gr_context = here, here.gr_context
    answer: Done | Awaitable[Any] = on(aside, stack.switch, work)
    while not isinstance(answer, Done):
        try:
            value = await (_whole(answer, aside) if unbroken and not hasattr(answer, "cancelled") else answer)
        except BaseException:  # noqa: BLE001  # raised in the work, which goes on from there
            answer = on(aside, stack.throw, *sys.exc_info())
        else:
            answer = on(aside, stack.switch, value)
    stack.gr_context = None
    if len(stacks) < KEPT:
        stacks.append(stack)
    value, error = answer.take()
    cancelled, aside.cancelled = aside.cancelled, None
    try:
        if cancelled is not None:
            raise cancelled from error
        if error is not None:
            raise error
    finally:
        del cancelled, error  # they refer to this frame
    return value  # type: ignore[no-any-return]


async def _whole(foreign: Awaitable[T], aside: Fiber) -> T:
    """Wait to the end for an awaitable that would react to a cancellation and can't report it.

    A loop that is being closed cancels it all the same.
    """
    doing = asyncio.ensure_future(foreign)
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as cancelled:
            aside.cancelled = cancelled
    try:
        return doing.result()
    finally:
        del doing  # its error refers to this frame


def _do_each() -> None:
    done: Done | None = None
    while True:
        work = _here().switch(done)
        try:
            done = Done(work())
        except GreenletExit:
            raise  # no caller is left to take the answer
        except BaseException as error:  # noqa: BLE001  # raised where the work was requested
            done = Done(None, error)
        del work


def _here() -> greenlet:
    parent = getcurrent().parent
    assert parent is not None
    return parent
