"""Callers: the same transaction again and again from threads or asyncio tasks, with latencies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Calls:
    """What the callers did."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def threads(count: int, seconds: float, call: Callable[[int], None]) -> Calls:
    """Call from `count` threads for so many seconds; the first error ends it."""
    calls, failures = Calls(), []
    each: list[list[float]] = [[] for _ in range(count)]
    end = time.perf_counter() + seconds

    def work(at: int) -> None:
        mine, now = each[at], time.perf_counter
        try:
            before = now()
            while before < end:
                call(at)
                after = now()
                mine.append(after - before)
                before = after
        except Exception as failure:  # noqa: BLE001  # reported by the caller
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(at,)) for at in range(count)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    calls.seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    calls.latencies = [latency for mine in each for latency in mine]
    return calls


def tasks(count: int, seconds: float, call: Callable[[int], Awaitable[None]]) -> Calls:
    """Call from `count` asyncio tasks for so many seconds."""
    calls = Calls()

    async def work(at: int, end: float) -> None:
        before = time.perf_counter()
        while before < end:
            await call(at)
            after = time.perf_counter()
            calls.latencies.append(after - before)
            before = after

    async def main() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(work(at, end) for at in range(count)))

    started = time.perf_counter()
    asyncio.run(main())
    calls.seconds = time.perf_counter() - started
    return calls
