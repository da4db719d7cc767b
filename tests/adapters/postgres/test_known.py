"""A send whose statement the driver knows goes past its cursors, and back to them where the driver knows it no more."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import txsaga
from tests.engine.stored import Stored
from txsaga.adapters.postgres import joining
from txsaga.adapters.postgres.connection import parse_url
from txsaga.adapters.postgres.known import answer
from txsaga.engine.broker import Broker, JoiningProducer
from txsaga.errors import NotPrimary, StoreUnavailable
from txsaga.wiring import open_store

pytestmark = pytest.mark.postgres


class GivenUp(Exception):
    """What the caller's own code may raise."""


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("paid", queues=1)
        yield broker


@pytest.fixture
def bank(broker: Broker) -> JoiningProducer:
    return broker.producer("bank")


@pytest.fixture
def engine(home_url: str) -> Iterator[Engine]:
    engine = create_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
    yield engine
    engine.dispose()


@pytest.fixture
def by_cursor(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which sends go by a cursor of the driver's."""
    noted: list[str] = []
    for kind in (psycopg.Cursor, psycopg.AsyncCursor):
        monkeypatch.setattr(kind, "execute", _noting(kind.execute, noted))
    return noted


def _noting(execute: Callable[..., object], noted: list[str]) -> Callable[..., object]:
    def noting(cursor: object, query: object, *given: object, **options: object) -> object:
        if isinstance(query, bytes) and b"half" in query:
            noted.append("send")
        return execute(cursor, query, *given, **options)

    return noting


def in_thread(work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  # raised where the thread is waited for
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def send(bank: JoiningProducer, engine: Engine, body: bytes = b"7") -> int:
    with engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        return bank.join(connection).send("paid", body)


def test_a_thread_goes_by_the_cursor_once(
    bank: JoiningProducer, engine: Engine, stored: Stored, by_cursor: list[str]
) -> None:
    txids: list[int] = []
    in_thread(lambda: txids.extend(send(bank, engine) for _ in range(4)))
    assert by_cursor == ["send"]
    assert stored.rows("SELECT txid FROM half ORDER BY txid") == [(txid,) for txid in txids]


def test_the_main_thread_can_be_interrupted_so_it_goes_by_the_cursor(
    bank: JoiningProducer, engine: Engine, by_cursor: list[str]
) -> None:
    for _ in range(3):
        send(bank, engine)
    assert by_cursor == ["send"] * 3


def test_what_the_driver_drops_behind_a_rollback_is_not_used(
    bank: JoiningProducer, engine: Engine, stored: Stored, by_cursor: list[str]
) -> None:
    def work() -> None:
        send(bank, engine)
        with suppress(GivenUp), engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            bank.join(connection).send("paid", b"8")
            raise GivenUp
        send(bank, engine)
        send(bank, engine)

    in_thread(work)
    assert by_cursor == ["send", "send"]
    assert stored.value("SELECT count(*) FROM half") == 3


def test_a_send_that_opens_the_transaction_lets_the_driver_begin_it(
    bank: JoiningProducer, engine: Engine, stored: Stored
) -> None:
    def work() -> None:
        send(bank, engine)
        with engine.connect() as connection:
            connection.begin()
            bank.join(connection).send("paid", b"8")
            connection.rollback()

    in_thread(work)
    assert stored.value("SELECT count(*) FROM half") == 1


def test_what_the_server_refuses_is_told_in_our_words(bank: JoiningProducer, engine: Engine, stored: Stored) -> None:
    def work() -> None:
        send(bank, engine)
        with pytest.raises(NotPrimary), engine.begin() as connection:
            connection.execute(text("SET TRANSACTION READ ONLY"))
            bank.join(connection).send("paid", b"8")
        send(bank, engine)

    in_thread(work)
    assert stored.value("SELECT count(*) FROM half") == 2


def test_a_session_that_is_lost_is_told_and_replaced(bank: JoiningProducer, engine: Engine, stored: Stored) -> None:
    def work() -> None:
        send(bank, engine)
        with pytest.raises(StoreUnavailable), engine.begin() as connection:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
            sends = bank.join(connection)
            stored.rows(f"SELECT pg_terminate_backend({pid}, 5000)")
            sends.send("paid", b"8")
        send(bank, engine)

    in_thread(work)
    assert stored.value("SELECT count(*) FROM half") == 2


def test_a_driver_that_does_not_tell_what_it_knows_is_left_to_its_cursor(
    bank: JoiningProducer, engine: Engine, by_cursor: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def __init__(self, driver: psycopg.Connection[Any]) -> None:
            self.pgconn = driver.pgconn

    def work() -> None:
        send(bank, engine)
        monkeypatch.setattr(joining, "answer", lambda driver, *given: answer(Silent(driver), *given))  # type: ignore[arg-type]
        send(bank, engine)

    in_thread(work)
    assert by_cursor == ["send", "send"]


def test_a_task_goes_by_the_cursor_once(
    bank: JoiningProducer, home_url: str, stored: Stored, by_cursor: list[str]
) -> None:
    async def work() -> None:
        engine = create_async_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
        for _ in range(4):
            async with engine.begin() as connection:
                await connection.execute(text("SELECT 1"))
                await bank.join(connection).send("paid", b"7")
        await engine.dispose()

    asyncio.run(work())
    assert by_cursor == ["send"]
    assert stored.value("SELECT count(*) FROM half") == 4


@pytest.mark.parametrize("times", [1, 200])
def test_a_task_that_is_cancelled_while_it_waits_for_a_lock_waits_no_more(
    bank: JoiningProducer, home_url: str, stored: Stored, times: int
) -> None:
    async def work() -> None:
        engine = create_async_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
        locks = create_async_engine(parse_url(home_url)[0])

        async def one() -> None:
            async with engine.begin() as connection:
                await connection.execute(text("SELECT 1"))
                await bank.join(connection).send("paid", b"7")

        await one()
        async with locks.begin() as holder:
            await holder.execute(text(f'LOCK TABLE "{stored.namespace}".half IN SHARE MODE'))
            waiting = asyncio.create_task(one())
            await asyncio.sleep(0.3)
            for _ in range(times):  # again in each turn, as some scopes do
                waiting.cancel()
                await asyncio.sleep(0)
            done, _ = await asyncio.wait([waiting], timeout=5)
            assert done and waiting.cancelled()
        await one()
        await engine.dispose()
        await locks.dispose()

    asyncio.run(work())
    assert stored.value("SELECT count(*) FROM half") == 2
