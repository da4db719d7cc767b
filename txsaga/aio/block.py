"""
A block within an event loop: a block of threads that suspends only its task.

It has no rules of its own: the block of threads defines what a block may do, and what becomes of it. Calls to the store
other than the block's end run in a thread. A cancelled task first gets the outcome of what it handed over. If the
process dies, check-back settles the block like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from txsaga.consume.delivery import Consumed, Delivery
from txsaga.core.decision import Decision
from txsaga.core.fibers import Loops, run_blocking
from txsaga.core.layout import Batch
from txsaga.core.message import Column, Message, SendOptions
from txsaga.messages.message_buffer import DecidedBlock

T = TypeVar("T")
U = TypeVar("U")


class AsyncContext(Generic[T]):
    """A block of threads, entered and left within a loop."""

    unbroken = False
    """Whether a cancellation waits for its exit."""

    def __init__(self, block: AbstractContextManager[T], in_loop: Loops, one: asyncio.Lock) -> None:
        self._block, self._in_loop, self._one = block, in_loop, one
        self._entered = False

    async def __aenter__(self) -> T:
        """Enter it; if the task was cancelled meanwhile, leave it again."""
        try:
            return await self.alone(self._enter)
        except asyncio.CancelledError as cancelled:
            if self._entered:
                await self.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
            raise

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._in_loop(partial(self._block.__exit__, kind, error, trace), unbroken=self.unbroken)

    async def alone(self, work: Callable[[], U]) -> U:
        """Run some work of the block, after that of other tasks."""
        await self._one.acquire()
        try:
            return await self._in_loop(work)
        finally:
            self._one.release()

    def _enter(self) -> T:
        entered = self._block.__enter__()
        self._entered = True
        return entered


class ShieldedContext(AsyncContext[T]):
    """A context whose exit uses connections that would react to a cancellation half-way."""

    unbroken = True


B = TypeVar("B", bound=DecidedBlock)


class AsyncBlock(Generic[B]):
    """A block within an event loop."""

    crossing: type[AsyncContext[Any]] = AsyncContext

    def __init__(self, block: B, in_loop: Loops) -> None:
        self._block, self._in_loop = block, in_loop
        self._one = asyncio.Lock()  # one task at a time: nothing is added while messages are stored
        self._across = self.crossing(block, in_loop, self._one)

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""
        return self._block.txid

    @property
    def id(self) -> str | None:
        """The id that names store and transaction, once there is one."""
        return self._block.id

    @property
    def decision(self) -> Decision | None:
        """The decision, once it is known here."""
        return self._block.decision

    async def enter(self) -> None:
        """Open the block."""
        await self._across.__aenter__()

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the block decide, after the work that other tasks have begun in it; a cancelled task leaves it, too."""
        cancelled = await self._taken()
        try:
            await self._across.__aexit__(kind, error, trace)
        finally:
            self._one.release()
            if cancelled is not None:
                raise cancelled

    async def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Add a message: only COMMIT publishes it."""
        await self._alone(partial(self._block.send, topic, body, **options))

    async def send_many(self, topic: str, bodies: Sequence[bytes], *, keys: Column = None, tags: Column = None) -> None:
        """Add many messages of one topic as columns."""
        await self._alone(partial(self._block.send_many, topic, bodies, keys=keys, tags=tags))

    @overload
    async def consume(self, consumed: Delivery) -> None: ...

    @overload
    async def consume(self, consumed: Consumed, batch: Batch) -> None: ...

    async def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Let this transaction's decision remove a message from its group, or move a stream's cursor past a chunk."""
        taken: Callable[[], None] = partial(self._block.consume, consumed, batch)
        await self._alone(lambda: run_blocking(taken))

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Call a listener with the decision."""
        self._block.when_decided(listener)

    async def _taken(self) -> asyncio.CancelledError | None:
        """Wait for the other tasks; return a cancellation that came meanwhile."""
        cancelled = None
        while True:
            try:
                await self._one.acquire()
                return cancelled
            except asyncio.CancelledError as again:
                cancelled = again

    async def _alone(self, work: Callable[[], T]) -> T:
        return await self._across.alone(work)


A = TypeVar("A", bound=AsyncBlock[Any])


class InLoop(DecidedBlock, Generic[A]):
    """A block that can be entered by a task of an event loop, too."""

    _looping: type[A]
    _looped: A | None = None

    async def __aenter__(self) -> A:
        self._require_new()
        looped = self._looping(self, self._kernel.in_loop)
        await looped.enter()
        self._looped = looped
        return looped

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide; only this task waits."""
        assert self._looped is not None
        try:
            await self._looped.leave(kind, error, trace)
        finally:
            self._looped = None  # it refers to the block: only garbage collection would free both
