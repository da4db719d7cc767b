"""Callers: the same transaction again and again from threads or asyncio tasks, with latencies.

Each makes some calls before the clock starts, on both sides of a comparison: a connection is opened once, and what is
looked up at its first use is not what a call costs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

WARM = 20
"""Calls of each caller before the clock starts; a slow one makes fewer."""
WARMING = 2.0
"""Seconds for them."""


@dataclass
class Calls:
    """What the callers did."""

    seconds: float = 0.0
    made: int = 0  # with those before the clock started
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def threads(
    count: int, seconds: float, call: Callable[[int], None], begin: Callable[[], object] = lambda: None
) -> Calls:
    """Call from `count` threads for so many seconds, `begin` once all are warm; the first error ends it."""
    calls, failures = Calls(), []
    each: list[list[float]] = [[] for _ in range(count)]
    started, warmed = [0.0], [0] * count
    now = time.perf_counter

    def start() -> None:
        begin()
        started[0] = now()

    warm = threading.Barrier(count, start)

    def work(at: int) -> None:
        try:
            warmed[at] = _warm_up(lambda: call(at))
            warm.wait()
            mine, before, end = each[at], now(), started[0] + seconds
            while before < end:
                call(at)
                after = now()
                mine.append(after - before)
                before = after
        except threading.BrokenBarrierError:
            pass  # somebody else's failure
        except Exception as failure:  # noqa: BLE001  # reported by the caller
            failures.append(failure)
            warm.abort()

    workers = [threading.Thread(target=work, args=(at,)) for at in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    calls.seconds = now() - started[0]
    calls.latencies = [latency for mine in each for latency in mine]
    calls.made = sum(warmed) + len(calls.latencies)
    return calls


def _warm_up(call: Callable[[], None]) -> int:
    end = time.perf_counter() + WARMING
    for made in range(WARM):
        if time.perf_counter() > end:
            return made
        call()
    return WARM


async def _nothing() -> None:
    pass


def tasks(
    count: int,
    seconds: float,
    call: Callable[[int], Awaitable[None]],
    begin: Callable[[], object] = lambda: None,
    close: Callable[[], Awaitable[None]] = _nothing,
) -> Calls:
    """Call from `count` asyncio tasks for so many seconds, `begin` once all are warm; `close` within the loop."""
    calls = Calls()

    async def warm_up(at: int) -> None:
        for _ in range(WARM):
            await call(at)

    async def work(at: int, end: float) -> None:
        before = time.perf_counter()
        while before < end:
            await call(at)
            after = time.perf_counter()
            calls.latencies.append(after - before)
            before = after

    async def main() -> None:
        await asyncio.gather(*map(warm_up, range(count)))
        begin()
        started = time.perf_counter()
        await asyncio.gather(*(work(at, started + seconds) for at in range(count)))
        calls.seconds = time.perf_counter() - started
        await close()

    asyncio.run(main())
    calls.made = WARM * count + len(calls.latencies)
    return calls
