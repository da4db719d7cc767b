"""A task that is cancelled anywhere in a coordinated block leaves one outcome behind, and no branch that waits."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.coordinated.looped import LoopedBank, move
from txsaga.core.decision import Decision
from txsaga.core.fibers import run_blocking
from txsaga.errors import TransactionClosed
from txsaga.flows.coordinated import AsyncCoordinated, AsyncLane
from txsaga.flows.requests import Decide

pytestmark = pytest.mark.postgres

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}
HELD = 77
"""An advisory lock, by which a test holds what a server does."""
MOVE = "update account set balance = balance + :change where id = 1"
MOMENTS = 60
"""At which a transfer is cancelled."""


def hold_votes(looping: LoopedBank, name: str) -> None:
    """Let the votes of a database wait until nobody holds the lock."""
    with looping.bank.engines[name].begin() as connection:
        connection.exec_driver_sql(
            "create function held() returns trigger language plpgsql as"
            f" 'begin perform pg_advisory_xact_lock_shared({HELD}); return null; end'"
        )
        connection.exec_driver_sql(
            "create constraint trigger held after update on account deferrable initially deferred"
            " for each row execute function held()"
        )


async def waits(looping: LoopedBank, name: str) -> None:
    """Wait until somebody waits for the lock."""

    def look() -> bool:
        with looping.bank.engines[name].connect() as connection:
            asked = (
                "select count(*) from pg_locks join pg_database on pg_database.oid = database"
                " where locktype = 'advisory' and not granted and datname = current_database()"
            )
            return bool(connection.exec_driver_sql(asked).scalar())

    while not await asyncio.to_thread(look):
        await asyncio.sleep(0.02)


async def cancelled_twice(transfer: asyncio.Task[None]) -> None:
    for _ in range(2):
        transfer.cancel()
        await asyncio.sleep(0.05)
        assert not transfer.done()  # what was handed over can't be withdrawn


class Held:
    """A file whose commits wait for a reader."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader, self.reading = reader, Event()

    def read(self) -> None:
        self._reader.execute("begin")
        self.rows()
        self.reading.set()

    def leave(self) -> None:
        self._reader.execute("rollback")

    def rows(self) -> list[tuple[int]]:
        return self._reader.execute("select id from entry").fetchall()


def cancel_soon(task: asyncio.Task[None]) -> None:
    asyncio.get_running_loop().call_soon(task.cancel)


async def cancelled_after(transfer: asyncio.Task[None], seconds: float, times: int) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0)
    for _ in range(times):
        transfer.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(transfer, return_exceptions=True)


def test_in_its_work_it_rolls_back(looping: LoopedBank) -> None:
    told: list[AsyncCoordinated] = []

    async def transfer(limit: asyncio.Timeout) -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            told.append(tx)
            await looping.transfer(tx)
            async with tx.on("current") as connection:
                limit.reschedule(asyncio.get_running_loop().time() + 0.1)
                await connection.execute(text("select pg_sleep(60)"))

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await transfer(limit)

    looping.run(work)
    assert (looping.bank.balances(), looping.bank.told(), looping.bank.prepared()) == (UNTOUCHED, [], [])
    assert told[0].decision is Decision.ROLLBACK


@pytest.mark.parametrize("name", ["current", "mortgage"])
def test_at_its_votes_it_hears_them_and_what_was_decided(looping: LoopedBank, name: str) -> None:
    hold_votes(looping, name)
    told: list[AsyncCoordinated] = []

    async def transfer() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            told.append(tx)
            await looping.transfer(tx)

    async def work() -> None:
        with looping.bank.engines[name].connect() as holder:
            holder.exec_driver_sql(f"select pg_advisory_lock({HELD})")
            moving = asyncio.ensure_future(transfer())
            await waits(looping, name)
            await cancelled_twice(moving)
            holder.exec_driver_sql(f"select pg_advisory_unlock({HELD})")
            with pytest.raises(asyncio.CancelledError):
                await moving

    looping.run(work)
    assert told[0].decision is Decision.COMMIT
    assert (looping.bank.balances(), looping.bank.told(), looping.bank.prepared()) == (PAID, ["10"], [])


def test_while_it_is_decided_it_hears_the_decision(looping: LoopedBank, monkeypatch: pytest.MonkeyPatch) -> None:
    came, go, told = Event(), Event(), list[AsyncCoordinated]()
    batcher = looping.bank.broker.kernel.requests
    run = batcher._run

    def holding(items: Any) -> Any:  # as the real one
        if isinstance(items[0], Decide):
            came.set()
            assert run_blocking(lambda: go.wait(10))
        return run(items)

    async def transfer() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            told.append(tx)
            await looping.transfer(tx)

    async def work() -> None:
        monkeypatch.setattr(batcher, "_run", holding)
        moving = asyncio.ensure_future(transfer())
        await asyncio.to_thread(came.wait, 10)
        await cancelled_twice(moving)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await moving

    looping.run(work)
    assert told[0].decision is Decision.COMMIT
    assert (looping.bank.balances(), looping.bank.told(), looping.bank.prepared()) == (PAID, ["10"], [])


def test_as_it_opens_a_session_it_gives_it_back(looping: LoopedBank) -> None:
    told: list[AsyncCoordinated] = []

    async def transfer() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            told.append(tx)
            async with tx.on("current") as connection:
                await move(connection, -10)
            me = asyncio.current_task()
            assert me is not None
            asyncio.get_running_loop().call_soon(me.cancel)
            async with tx.on("mortgage") as connection:
                await move(connection, 10)

    async def work() -> None:
        for _ in range(8):  # more than the pools hold
            with pytest.raises(asyncio.CancelledError):
                await asyncio.ensure_future(transfer())
        assert {engine.sync_engine.pool.checkedout() for engine in looping.loops.values()} == {0}  # type: ignore[attr-defined]  # of a queue

    looping.run(work)
    assert {tx.decision for tx in told} == {Decision.ROLLBACK}
    assert (looping.bank.balances(), looping.bank.prepared()) == (UNTOUCHED, [])


@pytest.mark.parametrize(
    ("way", "both"), [("by connections", {Decision.COMMIT, Decision.ROLLBACK}), ("by journals", {Decision.COMMIT})]
)
def test_at_any_moment_what_it_tells_is_what_happened(looping: LoopedBank, way: str, both: set[Decision]) -> None:
    chance, paid = random.Random(3), 0

    async def transfer(told: list[AsyncCoordinated]) -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            told.append(tx)
            if way == "by connections":
                await looping.transfer(tx)
            else:
                for name, change in (("current", -10), ("mortgage", 10)):
                    tx.journal(name).execute(MOVE, {"change": change}, rows=1)
                await tx.send(TRANSFERS, b"10")

    async def work() -> None:
        nonlocal paid
        loop, outcomes = asyncio.get_running_loop(), set()
        lasts = list[float]()
        for _ in range(2):  # the first opens what the others find open
            began = loop.time()
            await transfer([])
            lasts, paid = [*lasts, loop.time() - began], paid + 1
        for _ in range(MOMENTS):
            told = list[AsyncCoordinated]()
            moving = asyncio.ensure_future(transfer(told))
            await cancelled_after(moving, chance.random() * chance.choice(lasts), chance.choice([1, 2, 3]))
            decision = told[0].decision if told else None
            paid += decision is Decision.COMMIT
            outcomes.add(decision)
            assert looping.bank.balances() == {"current": START - 10 * paid, "mortgage": START + 10 * paid}
        assert both <= outcomes  # nothing of a journal is sent before its votes, and these are heard

    looping.run(work)
    assert (len(looping.bank.told()), looping.bank.prepared()) == (paid, [])


def test_behind_the_decision_every_session_is_given_back(looping: LoopedBank) -> None:
    pools = [engine.sync_engine.pool for engine in looping.loops.values()]
    kept = list[BaseException]()  # as a task that failed keeps what it raised

    async def transfer() -> None:
        me = asyncio.current_task()
        assert me is not None
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            tx.when_decided(lambda _: cancel_soon(me))
            await looping.transfer(tx)

    async def work() -> None:
        for _ in range(3):
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await asyncio.ensure_future(transfer())
            kept.append(cancelled.value)
            assert [pool.checkedout() for pool in pools] == [0, 0]  # type: ignore[attr-defined]  # of a queue

    looping.run(work)
    assert len(looping.bank.told()) == 3
    kept.clear()


@pytest.fixture
def held_book(looping: LoopedBank, tmp_path: Path) -> Iterator[Held]:
    """Give a file of SQLite's whose commits wait for a reader."""
    path = tmp_path / "book.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as reader:
        reader.execute("create table entry (id int primary key)")
        looping.bank.broker.register("book", create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool))
        yield Held(reader)


@pytest.mark.parametrize("lane", [False, True])
def test_as_a_file_of_sqlites_commits_it_hears_that_too(looping: LoopedBank, held_book: Held, lane: bool) -> None:
    told: list[AsyncCoordinated] = []

    async def transfer() -> None:
        async with looping.bank.producer.coordinated("current", *([] if lane else ["book"])) as tx:
            told.append(tx)
            async with tx.on("current") as connection:
                await move(connection, -10)
            of_book = await tx.lane("book") if lane else tx.on("book")
            async with of_book as connection:
                await connection.execute(text("insert into entry values (1)"))
            held_book.read()
            if isinstance(of_book, AsyncLane):
                await of_book.commit()

    async def work() -> None:
        moving = asyncio.ensure_future(transfer())
        await asyncio.to_thread(held_book.reading.wait, 10)
        await asyncio.sleep(0.2)
        await cancelled_twice(moving)
        held_book.leave()
        with pytest.raises(asyncio.CancelledError):
            await moving

    looping.run(work)
    looping.bank.broker.kernel.notes.flush()
    assert held_book.rows() == [(1,)]
    assert told[0].decision is (Decision.ROLLBACK if lane else Decision.COMMIT)
    assert looping.bank.balances()["current"] == START - (0 if lane else 10)
    assert told[0].txid is not None
    assert looping.bank.states(told[0].txid)["book"].name == "COMMITTED"
    assert looping.bank.prepared() == []


@pytest.mark.parametrize("word", ["commit", "roll_back"])
def test_a_lane_whose_task_is_cancelled_while_others_have_the_block_is_not_ended(
    looping: LoopedBank, word: str
) -> None:
    ended: list[str] = []

    async def work() -> None:
        async with looping.bank.producer.coordinated("current") as tx:
            lane = await tx.lane("mortgage")
            async with lane as connection:
                await move(connection, 10)
            unit, alone = lane._lane, lane._one
            with pytest.MonkeyPatch.context() as patch:
                for name in ("commit", "roll_back"):
                    patch.setattr(unit, name, lambda name=name: ended.append(name))
                async with alone:
                    ending = asyncio.ensure_future(getattr(lane, word)())
                    await asyncio.sleep(0.02)
                    ending.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.wait_for(asyncio.shield(ending), 5)
            assert ended == []
            await lane.roll_back()

    looping.run(work)
    assert looping.bank.balances()["mortgage"] == START


def test_nobody_enters_a_block_whose_failed_beginning_is_being_undone(
    looping: LoopedBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, undone = looping.bank.producer.coordinated("current"), list[BaseException]()

    def fails() -> None:
        raise KeyError("no beginning")

    def abandon(error: BaseException) -> None:
        with pytest.raises(TransactionClosed):
            block.__enter__()
        undone.append(error)

    monkeypatch.setattr(block._branches, "begin", fails)
    monkeypatch.setattr(block._branches, "abandon", abandon)
    with pytest.raises(KeyError), block:
        pass
    assert len(undone) == 1
