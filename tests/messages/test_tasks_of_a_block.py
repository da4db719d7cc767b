"""Several tasks, listeners and threads at one block of an event loop: nothing that was taken is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from tests.scene.looped_shop import ENTER, Looped, enter, looped
from tests.scene.shop import ORDERS, Shop, says
from txsaga import UNKNOWN, Decision
from txsaga.errors import StoreUnavailable, TransactionClosed
from txsaga.messages.stored_block import StoredBlock
from txsaga.messages.transaction import AsyncTransaction

pytestmark = pytest.mark.postgres


@pytest.fixture
def one(shop: Shop, engine_of: Callable[[str], Engine]) -> Looped:
    """Give a shop and books on PostgreSQL."""
    return looped(shop, engine_of("postgresql"), "psycopg")


async def send_on(tx: AsyncTransaction, taken: list[str]) -> None:
    """Send until the block takes no more."""
    for at in range(2_000):
        try:
            await tx.send(ORDERS, f"late {at}".encode())
        except TransactionClosed:
            return
        taken.append(f"late {at}")
        await asyncio.sleep(0)
    raise AssertionError("it took everything")


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("key", [None, "order-1"])
def test_what_another_task_sends_while_the_block_is_closed_is_taken_or_refused(
    one: Looped, key: str | None, local: bool
) -> None:
    taken: list[str] = []

    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction(key=key) as tx:
            sending = asyncio.ensure_future(send_on(tx, taken))
            await asyncio.sleep(0.005)
            if local:
                async with tx.local("books") as connection:
                    await enter(connection, 7)
        await sending

    one.run(work)
    assert taken
    assert sorted(one.shop.bodies()) == sorted(taken)


def test_local_work_begins_once_whoever_asks(one: Looped) -> None:
    async def work() -> tuple[object, object]:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")

            async def local(id: int) -> None:
                async with tx.local("books") as connection:
                    await enter(connection, id)

            return await asyncio.gather(local(1), local(2), return_exceptions=True)

    first, second = one.run(work)
    assert first is None
    assert isinstance(second, TransactionClosed)
    assert (one.entries(), one.shop.bodies(), one.shop.pending()) == ([1], ["a chair"], [])


def test_local_work_waits_for_messages_that_are_being_stored(one: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    add = StoredBlock.add

    def slowly(*given: object) -> None:
        time.sleep(0.2)
        add(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredBlock, "add", slowly)

    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction(key="order-1") as tx:
            sending = asyncio.ensure_future(tx.send_many(ORDERS, [bytes(100_000)] * 100))
            await asyncio.sleep(0.05)
            async with tx.local("books") as connection:
                await enter(connection, 7)
            await sending

    one.run(work)
    assert (one.entries(), len(one.shop.bodies())) == ([7], 100)


class Storing:
    """Messages that are being stored until the test lets go."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add, self._begun, self._go = add, threading.Event(), threading.Event()

    def add(self, *given: object) -> None:
        """Say that storing has begun, wait, and store."""
        self._begun.set()
        assert self._go.wait(30)
        self._add(*given)

    async def cancelled(self, shop: Shop, opened: list[AsyncTransaction]) -> None:
        """Cancel a task that leaves its block while another stores there; then let go."""
        leaving = asyncio.Event()

        async def sell() -> None:
            async with shop.producer().transaction(key="order-1") as tx:
                opened.append(tx)
                sending = asyncio.ensure_future(tx.send_many(ORDERS, [bytes(100_000)] * 100))
                sending.add_done_callback(asyncio.Future.exception)
                await asyncio.to_thread(self._begun.wait, 30)
                leaving.set()

        selling = asyncio.ensure_future(sell())
        await leaving.wait()
        await asyncio.sleep(0.05)
        selling.cancel()
        await asyncio.sleep(0.05)
        self._go.set()
        with pytest.raises(asyncio.CancelledError):
            await selling


def test_a_task_that_is_cancelled_as_it_leaves_behind_another_still_leaves(
    one: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, opened = Storing(StoredBlock.add), list[AsyncTransaction]()
    monkeypatch.setattr(StoredBlock, "add", lambda *given: storing.add(*given))
    one.run(lambda: storing.cancelled(one.shop, opened))
    assert (opened[0].decision, len(one.shop.bodies())) == (Decision.COMMIT, 100)


def test_a_cancellation_is_not_lost_when_the_block_fails(one: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreUnavailable("away")

    storing = Storing(fails)
    monkeypatch.setattr(StoredBlock, "add", lambda *given: storing.add(*given))
    one.run(lambda: storing.cancelled(one.shop, []))
    assert one.shop.bodies() == []


def test_blocks_need_no_thread_of_the_loops(one: Looped) -> None:
    async def sell(key: str) -> None:
        async with one.shop.producer().transaction(key=key) as tx:
            await tx.send(ORDERS, key.encode())

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))

        def handle(at: int) -> None:  # as a handler in a thread does that is given to the loop
            asyncio.run_coroutine_threadsafe(sell(f"order-{at}"), loop).result(10)

        await asyncio.gather(*(asyncio.to_thread(handle, at) for at in range(4)))

    one.run(work)
    assert sorted(one.shop.bodies()) == [f"order-{at}" for at in range(4)]


def test_a_listener_may_open_a_block_of_threads(one: Looped) -> None:
    def chained(_: Decision) -> None:
        with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            tx.send(ORDERS, b"chained")
            with tx.local("books") as connection:
                connection.execute(ENTER, {"id": 7})

    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            tx.when_decided(chained)
            await tx.send(ORDERS, b"first")

    one.run(work)
    assert (one.entries(), sorted(one.shop.bodies())) == ([7], ["chained", "first"])
