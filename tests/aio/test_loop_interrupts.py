"""An interrupt at any line of a loop's batches: whoever waits is told something, nobody a wrong thing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from txsaga.aio.in_loop import in_loop
from txsaga.core import batcher as batchers
from txsaga.core.batcher import Batcher
from txsaga.core.fibers import pause

LINES_OF = {batchers.__file__}
LEAST = 150
"""Lines that calls of four tasks come by; fewer would mean that nothing is traced."""


class Interrupts:
    """Raises at the line that comes as the given one."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.done = at, 0, False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:  # as a tracer does
        return self._in_line if frame.f_code.co_filename in LINES_OF else None

    def _in_line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and not self.done:
            self.seen += 1
            if self.seen == self.at:
                self.done = True
                raise KeyboardInterrupt
        return self._in_line


@contextmanager
def traced(interrupts: Interrupts) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(interrupts)
    try:
        yield
    finally:
        sys.settrace(before)


def run(items: Sequence[int]) -> Sequence[int]:
    pause(0.0005)
    return [item * 10 for item in items]


async def ended(*tasks: asyncio.Task[int]) -> bool:
    _, pending = await asyncio.wait(tasks, timeout=5)
    return not pending


def survived(at: int) -> bool:
    """Interrupt at one line; tell whether there was such a line."""
    batcher: Batcher[int, int] = Batcher("test", run, in_loops=True)
    interrupts, tasks = Interrupts(at), list[asyncio.Task[int]]()

    def calls(item: int) -> int:
        with traced(interrupts):
            return batcher.call(item)

    def begin(item: int) -> asyncio.Task[int]:
        return asyncio.ensure_future(in_loop(lambda: calls(item)))

    async def work() -> None:
        tasks.extend(map(begin, range(4)))
        await asyncio.gather(*tasks, return_exceptions=True)

    async def behind() -> int:
        assert await ended(*tasks), f"somebody waits for ever behind line {at}"
        later = begin(9)
        assert await ended(later), f"nobody runs the next batch behind line {at}"
        return later.result()

    loop = asyncio.new_event_loop()
    try:
        try:
            loop.run_until_complete(work())
        except KeyboardInterrupt:
            assert interrupts.done
        interrupted, interrupts.done = interrupts.done, True
        assert loop.run_until_complete(behind()) == 90
    finally:
        sys.settrace(None)  # a stack that was put aside has left its own here
        loop.close()
    answers = {at: task.result() for at, task in enumerate(tasks) if task.exception() is None}
    assert answers == {at: at * 10 for at in answers}
    return interrupted


def test_nobody_waits_for_ever_wherever_somebody_is_interrupted() -> None:
    at = 1
    while survived(at):
        at += 1
    assert at > LEAST
