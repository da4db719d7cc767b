"""Sends inside the caller's own transaction on an asynchronous connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

import txsaga
from tests.contracts.samples import drain
from tests.scene.stored import Stored
from tests.services.databases import DatabaseServer
from txsaga.broker import Broker
from txsaga.core.chunk import BODY, MAX_RECORDS, Chunk
from txsaga.errors import ConfigError, StoreUnavailable, TopicTypeMismatch
from txsaga.messages.producer import Producer
from txsaga.store.connection import parse_url
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

Engine = Callable[[], Any]
PAY = text("INSERT INTO account VALUES (:cents)")
NOTHING = [(0, 0)]
HELD = "SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM op)"


class GivenUp(Exception):
    """What the caller's own code may raise."""


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("paid", queues=1)
        broker.create_topic("ordered", "fifo", queues=1)
        yield broker


@pytest.fixture
def bank(broker: Broker) -> Producer:
    return broker.producer("bank")


@pytest.fixture(params=["psycopg", "asyncpg"])
def engine(request: pytest.FixtureRequest, home_url: str) -> Engine:
    """Give what opens the engine of a program that keeps its accounts in the home database."""
    url = parse_url(home_url)[0].set(drivername=f"postgresql+{request.param}")
    return lambda: accounts(create_async_engine(url, pool_size=4, max_overflow=0))


@asynccontextmanager
async def accounts(engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    try:
        async with engine.begin() as connection:
            await connection.execute(text("DROP TABLE IF EXISTS account"))
            await connection.execute(text("CREATE TABLE account (cents INTEGER)"))
        yield engine
    finally:
        await engine.dispose()


async def pay(connection: AsyncConnection, cents: int = 7) -> None:
    await connection.execute(PAY, {"cents": cents})


async def paid(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list(await connection.scalars(text("SELECT cents FROM account ORDER BY cents")))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


def bodies(broker: Broker) -> list[bytes | None]:
    """Tick, and return what a reader of the topic sees."""
    store = broker.kernel.store
    drain(store)
    entries = [entry for qid in store.registry.topic("paid").qids for entry in store.log.fetch(qid, 0, 1000)]
    return [value for entry in entries for value in Chunk(entry.body).column(BODY) or []]


@pytest.mark.req("RMQ-01")
def test_message_and_row_become_visible_with_the_callers_commit(broker: Broker, bank: Producer, engine: Engine) -> None:
    async def work() -> None:
        async with engine() as home:
            for cents in (1, 2, 3):
                async with home.begin() as connection:
                    await pay(connection, cents)
                    assert await bank.join(connection).send("paid", b"%d" % cents, key="a", tag="t") > 0
                    assert len(await paid(home)) == len(bodies(broker)) == cents - 1
            assert await paid(home) == [1, 2, 3]

    run(work)
    assert bodies(broker) == [b"1", b"2", b"3"]


def test_a_send_may_open_the_transaction_and_a_session_has_one_too(
    broker: Broker, bank: Producer, engine: Engine
) -> None:
    async def work() -> None:
        async with engine() as home:
            async with home.connect() as connection:
                await bank.join(connection).send("paid", b"opens")
                await connection.commit()
            async with AsyncSession(home) as session:
                await session.execute(PAY, {"cents": 1})
                await bank.join(await session.connection()).send("paid", b"of a session")
                await session.commit()

    run(work)
    assert bodies(broker) == [b"opens", b"of a session"]


def test_a_rollback_leaves_nothing_of_either(bank: Producer, engine: Engine, stored: Stored) -> None:
    async def work() -> None:
        async with engine() as home:
            with pytest.raises(GivenUp):
                async with home.begin() as connection:
                    await pay(connection)
                    await bank.join(connection).send("paid", b"7")
                    raise GivenUp
            assert await paid(home) == []

    run(work)
    assert stored.rows(HELD) == NOTHING


def test_many_messages_are_columns(broker: Broker, bank: Producer, engine: Engine) -> None:
    many = [b"%d" % n for n in range(MAX_RECORDS + 1)]

    async def work() -> None:
        async with engine() as home, home.begin() as connection:
            assert len(await bank.join(connection).send_many("paid", many, keys=["k"] * len(many))) == 2

    run(work)
    assert bodies(broker) == many


def test_tasks_send_at_the_same_time_on_connections_of_their_own(
    broker: Broker, bank: Producer, engine: Engine
) -> None:
    async def work() -> None:
        async with engine() as home:

            async def one(cents: int) -> None:
                async with home.begin() as connection:
                    await pay(connection, cents)
                    await bank.join(connection).send("paid", b"%d" % cents)

            await asyncio.gather(*map(one, range(40)))
            assert await paid(home) == list(range(40))

    run(work)
    assert sorted(int(body or b"") for body in bodies(broker)) == list(range(40))


def test_a_task_that_is_cancelled_while_it_sends_has_sent_nothing(
    bank: Producer, engine: Engine, stored: Stored
) -> None:
    async def work() -> None:
        async with engine() as home:

            async def one() -> None:
                async with home.begin() as connection:
                    await pay(connection)
                    await bank.join(connection).send("paid", b"7")

            await one()
            async with home.begin() as holder:
                await holder.execute(text(f'LOCK TABLE "{stored.namespace}".half IN SHARE MODE'))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(one(), 0.3)
            assert await paid(home) == [7]
            await one()

    run(work)
    assert stored.value("SELECT count(*) FROM half") == 2


def test_what_is_refused_leaves_the_callers_transaction_as_it_is(
    broker: Broker, bank: Producer, engine: Engine
) -> None:
    async def work() -> None:
        async with engine() as home:
            async with home.begin() as connection:
                await pay(connection)
                with pytest.raises(TopicTypeMismatch):
                    await bank.join(connection).send("ordered", b"7", ordering_key="a")
                await bank.join(connection).send("paid", b"7")
            with pytest.raises(ConfigError, match=r"not open; use `async with engine\.begin"):
                bank.join(home.connect())
            autocommit = home.execution_options(isolation_level="AUTOCOMMIT")
            async with autocommit.connect() as connection:
                with pytest.raises(ConfigError, match="in AUTOCOMMIT"):
                    await bank.join(connection).send("paid", b"8")

    run(work)
    assert bodies(broker) == [b"7"]


def test_another_database_is_refused(broker: Broker, bank: Producer, server: DatabaseServer) -> None:
    server.database("elsewhere")

    async def work() -> None:
        async with accounts(create_async_engine(server.url("elsewhere"))) as other:
            async with other.begin() as connection:
                await pay(connection, 1)
                with pytest.raises(ConfigError, match="does not lead to the home database"):
                    await bank.join(connection).send("paid", b"1")
                await pay(connection, 2)
            assert await paid(other) == [1, 2]

    run(work)
    assert bodies(broker) == []


def test_a_session_that_is_lost_is_told_in_our_words(bank: Producer, engine: Engine, stored: Stored) -> None:
    async def work() -> None:
        async with engine() as home:
            with pytest.raises(StoreUnavailable):
                async with home.begin() as connection:
                    await pay(connection)
                    pid = await connection.scalar(text("SELECT pg_backend_pid()"))
                    await asyncio.to_thread(stored.rows, f"SELECT pg_terminate_backend({pid}, 5000)")
                    await bank.join(connection).send("paid", b"7")
            assert await paid(home) == []

    run(work)
    assert stored.rows(HELD) == NOTHING


def test_within_run_sync_the_way_of_threads_does_it(broker: Broker, bank: Producer, engine: Engine) -> None:
    async def work() -> None:
        async with engine() as home:
            for body in (b"1", b"2"):
                async with home.begin() as connection:
                    await pay(connection)
                    await connection.run_sync(lambda sync, body=body: bank.join(sync).send("paid", body))
                    await bank.join(connection).send("paid", body + b"!")

    run(work)
    assert bodies(broker) == [b"1", b"1!", b"2", b"2!"]


def test_a_driver_that_binds_by_itself_sends_too(broker: Broker, bank: Producer, home_url: str) -> None:
    async def work() -> None:
        options = {"cursor_factory": psycopg.AsyncClientCursor}
        async with accounts(create_async_engine(parse_url(home_url)[0], connect_args=options)) as home:
            for body in (b"1", b"2"):
                async with home.begin() as connection:
                    await pay(connection)
                    await bank.join(connection).send("paid", body)

    run(work)
    assert bodies(broker) == [b"1", b"2"]
