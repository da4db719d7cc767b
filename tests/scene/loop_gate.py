"""Batches of a loop that wait at a gate, as a store does, and calls that stand in its line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

from txsaga.core.batcher import Batcher
from txsaga.core.fibers import run_blocking
from txsaga.errors import TxSagaError
from txsaga.wiring.connecting import in_loop


class Gate:
    """A batch function that waits at a gate as a store does, and remembers what it ran and where."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[threading.Thread] = set()
        self.open, self.entered = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[int]) -> Sequence[int | TxSagaError]:
        self.batches.append(list(items))
        self.threads.add(threading.current_thread())
        self.entered.set()
        assert run_blocking(lambda: self.open.wait(10))
        return [item * 10 for item in items]

    def opened(self) -> Gate:
        self.open.set()
        return self


Run = Callable[[Sequence[int]], Sequence[int | TxSagaError]]


def batcher_of(run: Run, **given: int | float | Callable[[int], int]) -> Batcher[int, int]:
    return Batcher("test", run, **given)  # type: ignore[arg-type]  # each by its name


def call(batcher: Batcher[int, int], item: int) -> Awaitable[int]:
    return in_loop(lambda: batcher.call(item))


async def begun(batcher: Batcher[int, int], *items: int) -> list[asyncio.Task[int]]:
    """Let tasks call, each once the one before it stands in the line."""
    tasks = []
    for item in items:
        tasks.append(asyncio.ensure_future(call(batcher, item)))
        await asyncio.sleep(0)
    return tasks


async def behind(batcher: Batcher[int, int], gate: Gate, *items: int) -> list[asyncio.Task[int]]:
    """Let a first call be held at the gate and others stand behind it."""
    first = await begun(batcher, 0)
    await asyncio.to_thread(gate.entered.wait, 10)
    return first + await begun(batcher, *items)
