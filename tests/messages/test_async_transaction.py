"""A block within an event loop is the block of threads: one outcome, and only its task waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.scene.looped_shop import DRIVERS, KINDS, Looped, enter, looped, while_it_runs
from tests.scene.shop import ORDERS, Shop, says
from txsaga import UNKNOWN, Decision
from txsaga.core.fibers import pause
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    InvalidMessage,
    ResourceUnknown,
    TransactionClosed,
    TransactionError,
)
from txsaga.messages.transaction import AsyncTransaction

pytestmark = pytest.mark.postgres
KEYS = pytest.mark.parametrize("key", [None, "order-1"])


class Mistake(Exception):
    """What the user's code raises."""


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def every(shop: Shop, engine_of: Callable[[str], Engine], driver: str) -> Looped:
    """Give a shop and books of each driver."""
    return looped(shop, engine_of(KINDS[driver]), driver)


@pytest.fixture
def one(shop: Shop, engine_of: Callable[[str], Engine]) -> Looped:
    """Give a shop and books on PostgreSQL."""
    return looped(shop, engine_of("postgresql"), "psycopg")


@KEYS
@pytest.mark.req("RMQ-01")
def test_local_work_and_messages_become_visible_together(every: Looped, key: str | None) -> None:
    producer = every.shop.producer(checker=says(UNKNOWN))

    async def work() -> AsyncTransaction:
        async with producer.transaction(key=key) as tx:
            await tx.send(ORDERS, b"a chair")
            await tx.send_many(ORDERS, [b"a table"])
            async with tx.local("books") as connection:
                await enter(connection, 7)
                assert every.entries() == []
                assert every.shop.bodies() == []
        return tx

    tx = every.run(work)
    assert tx.decision is Decision.COMMIT
    assert tx.id and tx.txid
    assert (every.entries(), sorted(every.shop.bodies())) == ([7], ["a chair", "a table"])


@KEYS
def test_what_the_body_raises_rolls_all_back_and_comes_out(every: Looped, key: str | None) -> None:
    producer, boom = every.shop.producer(checker=says(UNKNOWN)), Mistake()

    async def work() -> None:
        async with producer.transaction(key=key) as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await enter(connection, 7)
                raise boom

    with pytest.raises(Mistake) as caught:
        every.run(work)
    assert caught.value is boom
    assert (every.entries(), every.shop.bodies(), every.shop.pending()) == ([], [], [])


@KEYS
def test_a_mistake_behind_the_local_commit_changes_nothing(one: Looped, key: str | None) -> None:
    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction(key=key) as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await enter(connection, 7)
            raise Mistake

    with pytest.raises(Mistake):
        one.run(work)
    assert (one.entries(), one.shop.bodies()) == ([7], ["a chair"])


def test_an_error_of_the_database_comes_out_as_it_is(every: Looped) -> None:
    async def work() -> None:
        async with every.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await enter(connection, 7)
                await enter(connection, 7)

    with pytest.raises(IntegrityError):
        every.run(work)
    assert (every.entries(), every.shop.bodies(), every.shop.pending()) == ([], [], [])


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"], indirect=True)
def test_a_clear_no_at_commit_comes_out_as_it_is(every: Looped) -> None:
    with every.books.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE line (entry INT REFERENCES entry DEFERRABLE INITIALLY DEFERRED)")

    async def work() -> None:
        async with every.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await connection.exec_driver_sql("INSERT INTO line VALUES (7)")

    with pytest.raises(IntegrityError):
        every.run(work)
    assert (every.shop.bodies(), every.shop.pending()) == ([], [])


def test_an_error_that_was_dropped_is_no_commit(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await enter(connection, 7)
                with pytest.raises(IntegrityError):
                    await enter(connection, 7)

    with pytest.raises(TransactionError, match="rolled the local transaction"):
        one.run(work)
    assert (one.entries(), one.shop.bodies(), one.shop.pending()) == ([], [], [])


@pytest.mark.parametrize("raw", [True, False])
def test_work_that_ended_its_transaction_is_told_and_settled_by_its_evidence(every: Looped, raw: bool) -> None:
    async def work() -> None:
        async with every.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books") as connection:
                await enter(connection, 7)
                await (connection.exec_driver_sql("COMMIT") if raw else connection.commit())
                await enter(connection, 8)

    with pytest.raises(
        TransactionClosed if raw else TransactionError, match="before that is durable" if raw else "rolled back"
    ):
        every.run(work)
    assert (every.entries(), every.shop.bodies()) == (([7, 8], ["a chair"]) if raw else ([], []))
    assert every.shop.pending() == []


@pytest.mark.rule("R16")
@KEYS
def test_a_late_body_is_filled_within_the_local_transaction(every: Looped, key: str | None) -> None:
    producer = every.shop.producer(checker=says(UNKNOWN))

    async def work() -> None:
        async with producer.transaction(key=key) as tx:
            slot = await tx.later(ORDERS, key="k")
            async with tx.local("books") as connection:
                await enter(connection, 7)
                with pytest.raises(TransactionError, match="with its connection"):
                    await slot.fill(AsyncConnection(every.engine, connection.sync_connection), b"elsewhere")
                await slot.fill(connection, b"seven")

    every.run(work)
    assert (every.entries(), every.shop.bodies()) == ([7], ["seven"])


def test_a_place_that_was_not_filled_does_nothing(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.later(ORDERS)
            async with tx.local("books") as connection:
                await enter(connection, 7)

    with pytest.raises(TransactionError, match="not filled"):
        one.run(work)
    assert (one.entries(), one.shop.bodies()) == ([], [])


@KEYS
def test_messages_alone_need_no_local_work(one: Looped, key: str | None) -> None:
    heard: list[Decision] = []

    async def work() -> None:
        async with one.shop.producer().transaction(key=key) as tx:
            tx.when_decided(heard.append)
            await tx.send(ORDERS, b"a chair")

    one.run(work)
    assert (one.shop.bodies(), heard) == (["a chair"], [Decision.COMMIT])


def test_prepare_leaves_the_answer_to_the_checker(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer().transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            await tx.prepare()
            with pytest.raises(TransactionClosed):
                await tx.send(ORDERS, b"too late")
            raise Mistake

    with pytest.raises(Mistake):
        one.run(work)
    assert one.shop.bodies() == []
    assert one.shop.check() == 1
    assert one.shop.bodies() == ["a chair"]


def test_a_key_that_was_committed_is_refused_before_its_body(one: Looped) -> None:
    async def work(body: bytes) -> None:
        async with one.shop.producer().transaction(key="order-1") as tx:
            await tx.send(ORDERS, body)

    one.run(lambda: work(b"first"))
    with pytest.raises(AlreadyCommitted):
        one.run(lambda: work(b"second"))
    assert one.shop.bodies() == ["first"]


def test_many_tasks_share_the_store_and_the_database(one: Looped) -> None:
    producer = one.shop.producer(checker=says(UNKNOWN))

    async def sell(id: int) -> None:
        async with producer.transaction() as tx:
            await tx.send(ORDERS, str(id).encode())
            async with tx.local("books") as connection:
                await enter(connection, id)
                if id % 3 == 0:
                    raise Mistake

    async def work() -> list[BaseException | None]:
        return await asyncio.gather(*(sell(id) for id in range(40)), return_exceptions=True)

    raised = [at for at, each in enumerate(one.run(work)) if each is not None]
    sold = [id for id in range(40) if id % 3]
    assert raised == [id for id in range(40) if id % 3 == 0]
    assert (one.entries(), sorted(map(int, one.shop.bodies()))) == (sold, sold)
    assert one.shop.pending() == []


def test_messages_of_one_block_may_be_sent_by_many_tasks(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer().transaction(key="k") as tx:
            big = [bytes(100_000) for _ in range(30)]
            await asyncio.gather(*(tx.send_many(ORDERS, big) for _ in range(4)))

    one.run(work)
    assert len(one.shop.bodies()) == 120


@KEYS
def test_the_loop_goes_on_while_a_block_waits_for_its_store(
    one: Looped, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, store = one.shop.producer(), one.shop.store
    slow = 0.2

    def after_a_while(call: Callable[..., object]) -> Callable[..., object]:
        def waiting(*given: object, **named: object) -> object:
            pause(slow)
            return call(*given, **named)

        return waiting

    for part, name in ((store.halves, "write"), (store.ledgers, "open")):
        monkeypatch.setattr(part, name, after_a_while(getattr(part, name)))

    async def work() -> None:
        async with producer.transaction(key=key) as tx:
            await tx.send(ORDERS, b"a chair")

    _, turns = one.run(lambda: while_it_runs(work()))
    assert turns > 2 * slow / 0.005 / 4
    assert one.shop.bodies() == ["a chair"]


def test_an_engine_for_threads_is_refused_with_what_to_do(shop: Shop, engine_of: Callable[[str], Engine]) -> None:
    shop.broker.register("books", engine_of("sqlite"))

    async def work() -> None:
        async with shop.producer().transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local("books"):
                raise AssertionError

    with pytest.raises(ConfigError, match="create_async_engine"):
        asyncio.run(work())
    assert (shop.bodies(), shop.pending()) == ([], [])


def test_threads_may_work_in_what_is_registered_for_loops(every: Looped) -> None:
    with every.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
        tx.send(ORDERS, b"a chair")
        with tx.local("books") as connection:
            connection.exec_driver_sql("INSERT INTO entry (id) VALUES (7)")
    assert (every.entries(), every.shop.bodies()) == ([7], ["a chair"])


def test_the_resource_may_be_named_by_its_engine(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer(checker=says(UNKNOWN)).transaction() as tx:
            await tx.send(ORDERS, b"a chair")
            async with tx.local(one.engine) as connection:
                await enter(connection, 7)

    one.run(work)
    assert one.entries() == [7]


def test_what_is_not_registered_is_refused_by_name(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer().transaction() as tx:
            async with tx.local("boks"):
                raise AssertionError

    with pytest.raises(ResourceUnknown, match="boks"):
        one.run(work)


def test_a_message_that_is_refused_leaves_the_block_as_it_was(one: Looped) -> None:
    async def work() -> None:
        async with one.shop.producer().transaction() as tx:
            with pytest.raises(InvalidMessage):
                await tx.send(ORDERS, "no bytes")  # type: ignore[arg-type]
            await tx.send(ORDERS, b"a chair")

    one.run(work)
    assert one.shop.bodies() == ["a chair"]


def test_a_block_is_used_once_in_whichever_way(one: Looped) -> None:
    async def work() -> None:
        tx = one.shop.producer().transaction()
        async with tx as looped:
            await looped.send(ORDERS, b"a chair")
        with pytest.raises(TransactionClosed, match="used once"):
            async with tx:
                raise AssertionError
        with pytest.raises(TransactionClosed, match="used once"), tx:
            raise AssertionError

    one.run(work)
    assert one.shop.bodies() == ["a chair"]


@pytest.mark.rule("R4")
def test_a_key_is_not_opened_again_inside_its_own_block_nor_by_a_task_of_it(one: Looped) -> None:
    producer = one.shop.producer()

    async def again() -> None:
        async with producer.transaction(key="order-1"):
            pass

    async def work() -> None:
        async with producer.transaction(key="order-1") as tx:
            await tx.send(ORDERS, b"a chair")
            for attempt in (again(), asyncio.create_task(again())):
                with pytest.raises(TransactionError, match="use its transaction instead"):
                    await attempt

    one.run(work)
    assert one.shop.bodies() == ["a chair"]
