"""
A future of the core that threads wait on and asyncio awaits.

The batcher finishes all calls of a batch first and then wakes each event loop once. If the wake-up never ran, tasks
would hang although their decision is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from txsaga.core.arguments import check_kind

T = TypeVar("T")


class BatchFuture(Future[T]):
    """The answer of one call in a batch.

    A task leaves a note and then checks again; the answering thread sets the answer and then reads the notes, so no
    task is missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def cancel(self) -> bool:
        """Refuse: the call may be in the store already, and the other calls of its batch go on."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait in this thread."""
        _check(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait in this thread for the error, or for None."""
        _check(timeout)
        return super().exception(timeout)

    def __await__(self) -> Generator[object, None, T]:
        """Wait in the running event loop."""
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._tasks.append((loop, waiter))
            if not self.done():
                yield from waiter
        return self.result()


def _check(timeout: object) -> None:
    if timeout is not None:
        check_kind(timeout, (int, float), "timeout", "give seconds")


def wake(finished: Iterable[BatchFuture[T]]) -> None:
    """Wake the tasks that wait for these calls, every event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in finished:
        for loop, waiter in call._tasks:
            by_loop.setdefault(loop, []).append(waiter)
    for loop, waiters in by_loop.items():
        with suppress(RuntimeError):  # a closed loop has no waiters left
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
