"""
A future of the core that threads wait on and asyncio awaits.

It is a `concurrent.futures.Future`; awaiting it costs one wake-up of the event loop per *batch*, not per
call, because the batcher finishes all calls of a batch first and wakes each loop once. If the wake-up
never ran, awaiting tasks would hang although their decision is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Pending(Future[T]):
    """The answer of one call in a batch."""

    _awaiting: list[Waiter] | None = None

    def __await__(self) -> Generator[object, None, T]:
        """Wait in the running event loop."""
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            with self._condition:  # the lock that set_result takes
                if self._awaiting is None:
                    self._awaiting = []
                self._awaiting.append((loop, waiter))
                finished = self.done()
            if not finished:
                yield from waiter
        return self.result()

    def take_waiters(self) -> list[Waiter]:
        """Hand over those who await this call, once."""
        with self._condition:
            waiters, self._awaiting = self._awaiting or [], None
        return waiters


def wake(finished: Iterable[Pending[T]]) -> None:
    """Wake every event loop that awaits one of these calls, once per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in finished:
        if call._awaiting is not None:
            for loop, waiter in call.take_waiters():
                by_loop.setdefault(loop, []).append(waiter)
    for loop, waiters in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
