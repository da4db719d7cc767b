"""
A future of the core that threads wait on and asyncio awaits.

It is a `concurrent.futures.Future`. The batcher finishes all calls of a batch first and then wakes the waiters: each
event loop once, threads one after another. Waking them in the middle of a batch would pass the interpreter lock back
and forth. If the wake-up never ran, waiters would hang although their decision is durable.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import FINISHED, PENDING
from contextlib import suppress
from typing import Any, TypeVar

from txsaga.core.arguments import check_kind

Line = deque["Bell"]
LOOKS_UP = 1.0
"""Seconds after which a sleeping thread checks whether its wake-up was lost."""


class Bell:
    """Where one thread sleeps until it is woken."""

    __slots__ = ("_behind", "_gone", "_rung")

    def __init__(self) -> None:
        self._rung = threading.Lock()
        self._rung.acquire()
        self._behind, self._gone = Line(), False

    def sleep(self, seconds: float) -> None:
        """Sleep until the bell rings, for at most this many seconds or `LOOKS_UP`."""
        self._rung.acquire(timeout=min(seconds, LOOKS_UP))

    def leave(self) -> None:
        """Let the next thread go on, now or once this bell is rung."""
        self._gone = True  # set before the line is read: `ring` sets the line first and reads this flag then
        _ring_first(self._behind)

    def ring(self, line: Line) -> bool:
        """Wake the thread that sleeps here; return whether it is still there to ring the next bell of the line."""
        self._behind = line
        self._rung.release()
        return not self._gone


def ring(bells: Sequence[Bell]) -> None:
    """Wake all threads, one after another."""
    _ring_first(Line(bells))


def _ring_first(line: Line) -> None:
    while line:
        try:
            first = line.popleft()
        except IndexError:  # two threads raced for the last one
            return
        if first.ring(line):
            return


T = TypeVar("T")

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class _Own:
    """A list that a call gets on first access; most calls are answered before that."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, call: Future[T], owner: type) -> list[object]:
        return call.__dict__.setdefault(self._name, [])  # type: ignore[no-any-return]


class BatchFuture(Future[T]):
    """The answer of one call in a batch.

    A waiter leaves a note and then checks again; the answering thread marks the call and then reads the notes. So
    waiting needs no lock, and no waiter is missed. Of its base class it has what `wait`, `as_completed` and callbacks
    read, under the names that Python 3.11 and 3.12 use; it creates none of that before it is accessed.
    """

    _state, _result, _exception = PENDING, None, None
    _waiters: list[Any] = _Own()  # type: ignore[assignment]  # a list wherever it is read
    _done_callbacks: list[Any] = _Own()  # type: ignore[assignment]
    _answered = False

    def __init__(self) -> None:
        self._condition = threading.RLock()  # type: ignore[assignment]  # no thread waits on it
        self._notes: list[Waiter | Bell] = []

    def set_result(self, result: T) -> None:
        """Set the answer; `wake` wakes the waiters."""
        self._answer(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Set an error as the answer; `wake` wakes the waiters."""
        self._answer(None, exception)

    def cancel(self) -> bool:
        """Refuse: the call may be in the store already, and the other calls of its batch go on."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Wait in this thread."""
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait in this thread for the error, or for None."""
        self._wait(timeout)
        return self._exception

    def __await__(self) -> Generator[object, None, T]:
        """Wait in the running event loop."""
        if not self._answered:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._notes.append((loop, waiter))
            if not self._answered:
                yield from waiter
        return self._outcome()

    def _answer(self, result: T | None, exception: BaseException | None) -> None:
        with self._condition:
            if self._state is FINISHED:
                raise InvalidStateError(f"{self!r} is answered already")
            self._result, self._exception, self._state = result, exception, FINISHED
            for waiter in self.__dict__.get("_waiters", ()):
                (waiter.add_result if exception is None else waiter.add_exception)(self)
        try:
            if "_done_callbacks" in self.__dict__:
                self._invoke_callbacks()  # type: ignore[attr-defined]  # of the base class, which hides it
        finally:
            self._answered = True

    def _wait(self, timeout: float | None) -> None:
        if timeout is not None:
            check_kind(timeout, (int, float), "timeout", "give seconds")
        if not self._answered and not self.done():  # callbacks run in between
            until = math.inf if timeout is None else time.monotonic() + timeout
            bell = Bell()
            self._notes.append(bell)
            try:
                while not self._answered and (left := until - time.monotonic()) > 0:
                    bell.sleep(left)
            finally:
                bell.leave()
            if not self.done():
                raise TimeoutError

    def _outcome(self) -> T:
        if self._exception is not None:
            raise self._exception
        return self._result  # type: ignore[return-value]


def wake(finished: Iterable[BatchFuture[T]]) -> None:
    """Wake the waiters of these calls: every event loop once, threads one after another."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    bells: list[Bell] = []
    for call in finished:
        for note in call._notes:
            if isinstance(note, tuple):
                by_loop.setdefault(note[0], []).append(note[1])
            else:
                bells.append(note)
    ring(bells)
    for loop, waiters in by_loop.items():
        with suppress(RuntimeError):  # a closed loop has no waiters left
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
