"""
A future of the core that threads wait on and asyncio awaits.

It is a `concurrent.futures.Future`. The batcher finishes all calls of a batch first and then wakes everybody
who waits, each event loop once: waking them one by one would hand the interpreter back and forth in the
middle of a batch. If the wake-up never ran, waiters would hang although their decision is durable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Pending(Future[T]):
    """The answer of one call in a batch."""

    _awaiting: list[Waiter] | None = None
    _blocked: list[threading.Lock] | None = None

    def cancel(self) -> bool:
        """Refuse: the call may be in the store already, and its neighbours in the batch go on."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait in this thread."""
        if not self.done():
            gate = threading.Lock()
            gate.acquire()
            if self._join_blocked(gate):
                gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            return super().result(0)
        return super().result(timeout)

    def __await__(self) -> Generator[object, None, T]:
        """Wait in the running event loop."""
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            with self._condition:  # the lock that set_result takes
                self._awaiting = [*(self._awaiting or []), (loop, waiter)]
                finished = self.done()
            if not finished:
                yield from waiter
        return super().result(0)

    def take_waiters(self) -> tuple[list[Waiter], list[threading.Lock]]:
        """Hand over those who wait for this call, once."""
        with self._condition:
            waiting = self._awaiting or [], self._blocked or []
            self._awaiting = self._blocked = None
        return waiting

    def _join_blocked(self, gate: threading.Lock) -> bool:
        with self._condition:
            if self.done():
                return False
            self._blocked = [*(self._blocked or []), gate]
            return True


def wake(finished: Iterable[Pending[T]]) -> None:
    """Wake everybody who waits for one of these calls; every event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    gates: list[threading.Lock] = []
    for call in finished:
        if call._awaiting is not None or call._blocked is not None:
            awaiting, blocked = call.take_waiters()
            gates += blocked
            for loop, waiter in awaiting:
                by_loop.setdefault(loop, []).append(waiter)
    for gate in gates:
        gate.release()
    for loop, waiters in by_loop.items():
        with suppress(RuntimeError):  # a loop that was closed has nobody left who waits
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
