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

from txsaga.model.arguments import check_kind

T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Pending(Future[T]):
    """The answer of one call in a batch.

    Who waits leaves a note and then looks once more; who answers marks the call and then reads the notes. So
    nobody needs a lock, and nobody is missed.
    """

    _answered = False

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[Waiter | threading.Lock] = []

    def set_result(self, result: T) -> None:
        """Answer; `wake` tells those who wait."""
        try:
            super().set_result(result)
        finally:
            self._answered = True

    def set_exception(self, exception: BaseException | None) -> None:
        """Answer with an error; `wake` tells those who wait."""
        try:
            super().set_exception(exception)
        finally:
            self._answered = True

    def cancel(self) -> bool:
        """Refuse: the call may be in the store already, and its neighbours in the batch go on."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait in this thread."""
        if timeout is not None:
            check_kind(timeout, (int, float), "timeout", "give seconds")
        if not self._answered and not self.done():  # a callback runs between the two
            gate = threading.Lock()
            gate.acquire()
            self._notes.append(gate)
            if not self._answered:
                gate.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))
        return super().result(0)

    def __await__(self) -> Generator[object, None, T]:
        """Wait in the running event loop."""
        if not self._answered:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._notes.append((loop, waiter))
            if not self._answered:
                yield from waiter
        return super().result(0)


def wake(finished: Iterable[Pending[T]]) -> None:
    """Wake everybody who waits for one of these calls; every event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in finished:
        for note in call._notes:
            if isinstance(note, tuple):
                by_loop.setdefault(note[0], []).append(note[1])
            else:
                note.release()
    for loop, waiters in by_loop.items():
        with suppress(RuntimeError):  # a loop that was closed has nobody left who waits
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
