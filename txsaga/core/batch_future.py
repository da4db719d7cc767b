"""
A future of the core that threads wait on and asyncio awaits.

The batcher answers all calls of a batch first and then wakes their callers, each event loop once. If the wake-up never
ran, tasks would hang although their calls are answered.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from txsaga.core.arguments import check_kind

T = TypeVar("T")

LOOKS_UP = 1.0
"""Seconds after which a waiting thread checks whether its wake-up was lost."""

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class BatchFuture(Future[T]):
    """The answer of one call in a batch.

    A caller leaves a note and then checks again; the answering thread sets the outcome and then reads the notes, so no
    caller is missed. Waiting threads share no lock with the answering one: a signal handler that raises in one of them
    must not stop it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._outcome: tuple[T | None, BaseException | None] | None = None  # the result, or the error
        self._notes: list[Waiter | threading.Lock] = []

    def set_result(self, result: T) -> None:
        """Set the answer; `wake` wakes the callers."""
        self._set((result, None))
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Set an error as the answer; `wake` wakes the callers."""
        self._set((None, exception))
        super().set_exception(exception)

    def cancel(self) -> bool:
        """Refuse: the call may be in the store already, and the other calls of its batch go on."""
        return False

    def done(self) -> bool:
        """Return whether it is answered."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> T:
        """Wait in this thread."""
        result, error = self._wait(timeout)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # T, as there is no error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait in this thread for the error, or for None."""
        return self._wait(timeout)[1]

    def __await__(self) -> Generator[Any, None, T]:
        if self._outcome is None:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._notes.append((loop, waiter))
            if self._outcome is None:
                yield from waiter
        return self.result()

    def _set(self, outcome: tuple[T | None, BaseException | None]) -> None:
        if self._outcome is not None:
            raise InvalidStateError(f"{self!r} is answered already")
        self._outcome = outcome

    def _wait(self, timeout: float | None) -> tuple[T | None, BaseException | None]:
        if timeout is not None:
            check_kind(timeout, (int, float), "timeout", "give seconds")
        if self._outcome is None:
            until, woken = math.inf if timeout is None else time.monotonic() + timeout, threading.Lock()
            woken.acquire()
            self._notes.append(woken)
            while self._outcome is None and (left := until - time.monotonic()) > 0:
                woken.acquire(timeout=min(left, LOOKS_UP))
        if self._outcome is None:
            raise TimeoutError
        return self._outcome


def wake(finished: Iterable[BatchFuture[T]]) -> None:
    """Wake the callers of these calls, every event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in finished:
        for note in call._notes:
            if isinstance(note, tuple):
                by_loop.setdefault(note[0], []).append(note[1])
            else:
                note.release()
    for loop, waiters in by_loop.items():
        with suppress(RuntimeError):  # a closed loop has no waiters left
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
