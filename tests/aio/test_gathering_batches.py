"""Batches that gather: tasks that end at the same moment go together from then on, and who is alone does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from txsaga.aio.in_loop import in_loop
from txsaga.core.batcher import Batcher
from txsaga.core.fibers import pause

ROUNDS = 20
TURN = 0
"""Stands among the sizes of batches where the loop has taken a turn."""


class Line:
    """Batches that take a moment, as those do that a server answers."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.batcher: Batcher[int, int] = Batcher("gathering", self._run, in_loops=True, gathers=True)

    def _run(self, items: Sequence[int]) -> Sequence[int]:
        self.sizes.append(len(items))
        pause(0.002)
        return list(items)

    async def calls(self, caller: int, rounds: int = ROUNDS) -> None:
        """Call again and again, as a program does that has much to do."""
        for _ in range(rounds):
            assert await in_loop(lambda: self.batcher.call(caller)) == caller


@pytest.mark.parametrize("callers", [2, 3, 8])
def test_callers_that_come_at_the_same_moment_share_from_the_second_batch_on(callers: int) -> None:
    line = Line()

    async def work() -> None:
        await asyncio.gather(*map(line.calls, range(callers)))

    asyncio.run(work())
    assert sum(line.sizes) == callers * ROUNDS
    assert len(line.sizes) <= ROUNDS + 2


@pytest.mark.parametrize("callers", [2, 3])
def test_callers_that_wait_for_each_other_in_between_share_too(callers: int) -> None:
    line = Line()

    async def work() -> None:
        for _ in range(ROUNDS):
            await asyncio.gather(*(line.calls(each, 1) for each in range(callers)))

    asyncio.run(work())
    assert len(line.sizes) <= ROUNDS + 2


def test_who_is_alone_waits_for_no_turn_of_its_loop() -> None:
    line = Line()

    async def work() -> None:
        await line.calls(1, 2)
        asyncio.get_running_loop().call_soon(line.sizes.append, TURN)
        await line.calls(1, 1)

    asyncio.run(work())
    assert line.sizes[-2:] == [1, TURN]


def test_who_is_left_alone_is_alone_from_the_next_batch_but_one() -> None:
    line = Line()

    async def work() -> None:
        await asyncio.gather(line.calls(1), line.calls(2))
        await line.calls(1, 2)
        asyncio.get_running_loop().call_soon(line.sizes.append, TURN)
        await line.calls(1, 1)

    asyncio.run(work())
    assert line.sizes[-2:] == [1, TURN]
