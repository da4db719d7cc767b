"""A task that is cancelled again in each turn of its loop, as by the scopes of other frameworks, comes to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.flows.coordinated.bank import TRANSFERS
from tests.flows.coordinated.looped import LoopedBank
from tests.flows.coordinated.test_cancelled_coordinated import HELD, hold_votes, waits

pytestmark = pytest.mark.postgres


async def cancelled_till_done(task: asyncio.Task[None]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def transfer(looping: LoopedBank) -> None:
    async with looping.bank.producer.coordinated("current", "mortgage") as tx:
        await looping.transfer(tx)


async def write_down(looping: LoopedBank) -> None:
    async with looping.bank.producer.coordinated("current", "mortgage") as tx:
        tx.journal("current").execute("update account set balance = balance - 1")
        tx.journal("mortgage").execute("update account set balance = balance + 1")


@pytest.mark.parametrize("block", [transfer, write_down])
def test_the_end_of_a_coordinated_block_hears_its_votes(
    looping: LoopedBank, block: Callable[[LoopedBank], Awaitable[None]]
) -> None:
    hold_votes(looping, "current")

    async def work() -> None:
        with looping.bank.engines["current"].connect() as holder:
            holder.exec_driver_sql(f"select pg_advisory_lock({HELD})")
            doing = asyncio.ensure_future(block(looping))
            await waits(looping, "current")
            cancelling = asyncio.ensure_future(cancelled_till_done(doing))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(holder.exec_driver_sql, f"select pg_advisory_unlock({HELD})")
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(doing), 20)
        await cancelling

    looping.run(work)


def test_a_block_that_only_sends_does(looping: LoopedBank) -> None:
    async def send() -> None:
        async with looping.bank.producer.transaction() as tx:
            await tx.send(TRANSFERS, b"one")
            asyncio.get_running_loop().call_soon(cancelling.append, None)

    async def work() -> None:
        doing = asyncio.ensure_future(send())
        while not cancelling:
            await asyncio.sleep(0)
        ending = asyncio.ensure_future(cancelled_till_done(doing))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(doing), 20)
        await ending

    cancelling: list[None] = []
    looping.run(work)
