"""A task that is cancelled anywhere in its block leaves one outcome behind, and hears of no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from threading import Event

import pytest
from sqlalchemy import Engine

from tests.scene.looped_shop import POOL, Looped, enter, looped
from tests.scene.shop import ORDERS, Shop, says
from txsaga import UNKNOWN, Decision
from txsaga.core.batcher import Batcher
from txsaga.core.fibers import run_blocking
from txsaga.messages.transaction import AsyncTransaction

pytestmark = pytest.mark.postgres


@pytest.fixture
def one(shop: Shop, engine_of: Callable[[str], Engine]) -> Looped:
    """Give a shop and books on PostgreSQL."""
    return looped(shop, engine_of("postgresql"), "psycopg")


@contextmanager
def held(one: Looped, monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[tuple[Event, Event]]:
    """Hold the store's batch that comes as the given one: tell when it came, and let it go when told to."""
    came, go, seen = Event(), Event(), 0
    batcher: Batcher[object, object] = one.shop.broker.kernel.stores  # type: ignore[assignment]
    run = batcher._run

    def holding(items: object) -> object:
        nonlocal seen
        seen += 1
        if seen == at:
            came.set()
            assert run_blocking(lambda: go.wait(10))  # as the store waits: the loop goes on
        return run(items)  # type: ignore[arg-type]

    monkeypatch.setattr(batcher, "_run", holding)
    yield came, go
    go.set()


async def sell(one: Looped, told: list[AsyncTransaction]) -> None:
    async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
        told.append(tx)
        await tx.send(ORDERS, b"a chair")
        async with tx.local("books") as connection:
            await enter(connection, 7)


async def cancelled(selling: asyncio.Task[None], came: Event, go: Event) -> None:
    """Cancel a task while its batch is held, twice, and then let the batch go."""
    await asyncio.to_thread(came.wait, 10)
    for _ in range(2):
        selling.cancel()
        await asyncio.sleep(0.02)
        assert not selling.done()  # what was handed over can't be withdrawn
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await selling


def test_a_task_that_is_cancelled_while_its_half_is_stored_rolls_it_back(
    one: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[AsyncTransaction] = []

    async def work() -> None:
        with held(one, monkeypatch, 1) as (came, go):
            await cancelled(asyncio.ensure_future(sell(one, told)), came, go)

    one.run(work)
    assert (one.entries(), one.shop.bodies(), one.shop.pending()) == ([], [], [])
    assert told[0].decision is Decision.ROLLBACK


def test_a_task_that_is_cancelled_while_its_half_is_stored_begins_no_local_work(
    one: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with AsyncExitStack() as busy:
            for _ in range(POOL):  # whoever began local work would wait for a connection
                await busy.enter_async_context(one.engine.connect())
            with held(one, monkeypatch, 1) as (came, go):
                begun = time.monotonic()
                await asyncio.wait_for(cancelled(asyncio.ensure_future(sell(one, [])), came, go), 10)
                assert time.monotonic() - begun < 5

    one.run(work)
    assert (one.entries(), one.shop.bodies(), one.shop.pending()) == ([], [], [])


def test_a_task_that_is_cancelled_while_its_decision_is_stored_hears_it_first(
    one: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[AsyncTransaction] = []

    async def work() -> None:
        with held(one, monkeypatch, 2) as (came, go):
            await cancelled(asyncio.ensure_future(sell(one, told)), came, go)

    one.run(work)
    assert (one.entries(), one.shop.bodies()) == ([7], ["a chair"])
    assert told[0].decision is Decision.COMMIT


def test_a_block_that_is_over_in_time_is_not_a_timeout(one: Looped) -> None:
    async def work() -> None:
        async with asyncio.timeout(10):
            await sell(one, [])

    one.run(work)
    assert one.entries() == [7]


def test_a_timeout_within_a_block_comes_out_as_one(one: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    async def expire_within_the_decision(limit: asyncio.Timeout, came: Event, go: Event) -> None:
        await asyncio.to_thread(came.wait, 10)
        limit.reschedule(asyncio.get_running_loop().time())
        await asyncio.sleep(0.02)
        go.set()

    async def work() -> None:
        with held(one, monkeypatch, 2) as (came, go), pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as beside:
                beside.create_task(expire_within_the_decision(limit, came, go))
                await sell(one, [])
            raise AssertionError

    one.run(work)
    assert (one.entries(), one.shop.bodies()) == ([7], ["a chair"])


@pytest.mark.parametrize("moment", range(0, 60, 4))
def test_wherever_a_task_is_cancelled_there_is_one_outcome(one: Looped, moment: int) -> None:
    async def work() -> None:
        for at in range(8):
            selling = asyncio.ensure_future(sell_one(at))
            await asyncio.sleep(moment * 2e-4)
            selling.cancel()
            await asyncio.wait([selling])

    async def sell_one(id: int) -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction(key=f"{id}" if id % 2 else None) as tx:
            await tx.send(ORDERS, str(id).encode())
            async with tx.local("books") as connection:
                await enter(connection, id)

    one.run(work)
    one.shop.check()
    assert one.shop.pending() == []
    assert sorted(map(int, one.shop.bodies())) == one.entries()
