"""A block within a loop leaves nothing to the collection of garbage: else each costs all that runs beside it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.flows.coordinated.bank import TRANSFERS
from tests.flows.coordinated.looped import LoopedBank

pytestmark = pytest.mark.postgres

BLOCKS = 20


async def send(looping: LoopedBank) -> None:
    async with looping.bank.producer.transaction() as tx:
        await tx.send(TRANSFERS, b"one")


async def work_in_both(looping: LoopedBank) -> None:
    async with looping.bank.producer.coordinated("current", "mortgage") as tx:
        await looping.transfer(tx)


async def write_down(looping: LoopedBank) -> None:
    async with looping.bank.producer.coordinated("current", "mortgage") as tx:
        for name in looping.loops:
            tx.journal(name).execute("update account set balance = balance + 1")


async def be_cancelled(looping: LoopedBank) -> None:
    """Be cancelled in the work, or at the end, of a block in a task of its own."""

    async def transfer(at: str) -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            await looping.transfer(tx)
            task = asyncio.current_task()
            assert task is not None
            if at == "end":
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                task.cancel()
        del task, tx

    for at in ("work", "end"):
        with suppress(asyncio.CancelledError):
            await asyncio.ensure_future(transfer(at))


@pytest.mark.parametrize("block", [send, work_in_both, write_down, be_cancelled])
def test_what_a_block_held_is_gone_with_it(looping: LoopedBank, block: Callable[[LoopedBank], Awaitable[None]]) -> None:
    async def work() -> int:
        for _ in range(3):
            await block(looping)
        gc.collect()
        gc.disable()
        try:
            for _ in range(BLOCKS):
                await block(looping)
            return gc.collect()
        finally:
            gc.enable()

    assert looping.run(work) < BLOCKS
