"""A coordinated transaction within an event loop is the one of threads: one outcome, and only its task waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.coordinated.looped import LoopedBank, move
from tests.scene.looped_shop import while_it_runs
from txsaga import Callables, Folder
from txsaga.consume.delivery import Delivery
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.decision import Decision
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    IntegrityViolated,
    NotCarried,
    TransactionClosed,
    TransactionError,
    VotedNo,
)
from txsaga.flows.branch import BranchState

pytestmark = pytest.mark.postgres

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}


class Stop(Exception):
    """What the user's code raises."""


@pytest.mark.parametrize("key", [None, "transfer-7"])
@pytest.mark.req("IBM-02", "IBM-04")
def test_both_databases_and_the_message_are_there_or_nothing_is(looping: LoopedBank, key: str | None) -> None:
    bank = looping.bank

    async def work() -> None:
        async with bank.producer.coordinated("current", "mortgage", key=key) as tx:
            await looping.transfer(tx)
            assert await asyncio.to_thread(bank.balances) == UNTOUCHED
        assert tx.decision is Decision.COMMIT
        assert tx.txid is not None
        assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}
        with pytest.raises(Stop):
            async with bank.producer.coordinated("current", "mortgage") as tx:
                await looping.transfer(tx)
                raise Stop
        assert tx.decision is Decision.ROLLBACK

    looping.run(work)
    assert (bank.balances(), bank.told(), bank.prepared()) == (PAID, ["10"], [])


def test_what_a_key_has_done_is_not_done_again(looping: LoopedBank) -> None:
    async def work() -> None:
        for again in (False, True):
            if again:
                with pytest.raises(AlreadyCommitted):
                    await _keyed()
            else:
                await _keyed()

    async def _keyed() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
            await looping.transfer(tx)

    looping.run(work)
    assert looping.bank.balances() == PAID


def test_the_drivers_own_connection_takes_part(looping: LoopedBank) -> None:
    async def work() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            for name, change in (("current", -10), ("mortgage", 10)):
                async with tx.on(name, driver=True) as connection:
                    await connection.execute("update account set balance = balance + %s", (change,))

    looping.run(work)
    assert looping.bank.balances() == PAID


@pytest.mark.req("WM-15")
def test_a_vote_of_no_rolls_everything_back(looping: LoopedBank) -> None:
    bank = looping.bank
    with bank.engines["mortgage"].begin() as connection:
        connection.exec_driver_sql("alter table account add unique (balance) deferrable initially deferred")
        connection.exec_driver_sql(f"insert into account values (2, {START + 10})")

    async def work() -> None:
        with pytest.raises(IntegrityViolated):
            async with bank.producer.coordinated("current", "mortgage") as tx:
                await looping.transfer(tx)
        assert tx.decision is Decision.ROLLBACK

    looping.run(work)
    assert (bank.balances(), bank.told(), bank.prepared()) == (UNTOUCHED, [], [])


def test_only_the_task_waits_and_all_are_asked_at_once(looping: LoopedBank) -> None:
    for engine in looping.bank.engines.values():
        with engine.begin() as connection:
            connection.exec_driver_sql("create table vote (began timestamptz, ended timestamptz)")
            connection.exec_driver_sql(
                "create function slow() returns trigger language plpgsql as 'declare began timestamptz ="
                " clock_timestamp(); begin perform pg_sleep(0.5); insert into vote values (began, clock_timestamp());"
                " return null; end'"
            )
            connection.exec_driver_sql(
                "create constraint trigger slow after update on account deferrable initially deferred"
                " for each row execute function slow()"
            )

    async def transfer() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            await looping.transfer(tx)

    _, turns = looping.run(lambda: while_it_runs(transfer()))
    assert turns > 20  # in the half second of the votes alone there is room for a hundred
    votes = []
    for engine in looping.bank.engines.values():
        with engine.connect() as connection:
            votes.append(connection.exec_driver_sql("select began, ended from vote").one())
    assert max(vote.began for vote in votes) < min(vote.ended for vote in votes)


def test_one_resource_alone_commits_in_one_phase(looping: LoopedBank) -> None:
    async def work() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            async with tx.on("current") as connection:
                await move(connection, 5)
        assert tx.decision is Decision.COMMIT

    looping.run(work)
    assert looping.bank.balances() == {"current": START + 5, "mortgage": START}


def test_units_of_a_lane_are_settled_one_by_one(looping: LoopedBank) -> None:
    async def work() -> None:
        with pytest.raises(Stop):
            async with looping.bank.producer.coordinated("current", "mortgage") as tx:
                lane = await tx.lane("mortgage")
                async with lane as connection:
                    await move(connection, 1)
                await lane.commit()
                async with lane as connection:
                    await move(connection, 2)
                await lane.roll_back()
                async with lane as connection:
                    await move(connection, 4)
                async with tx.on("current") as connection:
                    await move(connection, -10)
                raise Stop

    looping.run(work)
    assert looping.bank.balances() == {"current": START, "mortgage": START + 1}


def test_ballots_are_part_of_the_decision(looping: LoopedBank) -> None:
    async def work() -> None:
        for yes in (True, False):
            try:
                async with looping.bank.producer.coordinated("current", "mortgage") as tx:
                    await looping.transfer(tx, str(yes))
                    await tx.ballot("four eyes", "anna")
                    assert await tx.vote("four eyes", "anna", yes=yes, evidence={"form": 7})
            except NotCarried:
                assert not yes

    looping.run(work)
    assert (looping.bank.balances(), looping.bank.told()) == (PAID, ["True"])


def test_the_decision_takes_a_message_off(looping: LoopedBank) -> None:
    bank = looping.bank
    bank.broker.create_topic("orders", queues=1)
    bank.broker.producer("shop").send("orders", b"pay")
    consumer = bank.broker.consumer("payers", ["orders"])

    def taken() -> list[Delivery]:
        while Dispatcher(bank.broker.kernel).run_once():
            pass
        return consumer.receive(1, wait=10)

    async def work() -> None:
        (received,) = await asyncio.to_thread(taken)
        async with bank.producer.coordinated("current", "mortgage") as tx:
            await looping.transfer(tx, received.text())
            await tx.consume(received)

    looping.run(work)
    assert (bank.balances(), bank.told(), consumer.receive(1)) == (PAID, ["pay"], [])


def test_what_is_no_database_is_spoken_to_in_threads(looping: LoopedBank, tmp_path: Path) -> None:
    bank, called = looping.bank, list[str]()
    bank.broker.enlist("reports", Folder(tmp_path))
    bank.broker.enlist(
        "seats",
        Callables(
            try_=lambda id, **given: called.append(f"try {given['seat']}"),
            confirm=lambda id, **given: called.append("confirm"),
            cancel=lambda id, **given: called.append("cancel"),
        ),
    )

    async def work() -> None:
        async with bank.producer.coordinated("current", "reports", "seats") as tx:
            async with tx.on("current") as connection:
                await move(connection, -10)
            async with tx.on("reports") as folder:
                folder.write("7.txt", b"ten were paid")
            async with tx.on("seats") as seats:
                await asyncio.to_thread(seats, seat=7)

    looping.run(work)
    assert (tmp_path / "7.txt").read_bytes() == b"ten were paid"
    assert called == ["try 7", "confirm"]
    assert bank.balances()["current"] == START - 10


def test_a_file_of_sqlites_comes_last(looping: LoopedBank, tmp_path: Path) -> None:
    file = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'book.db'}")
    looping.bank.broker.register("book", file)

    async def work() -> list[int]:
        async with file.begin() as connection:
            await connection.execute(text("create table entry (id int primary key)"))
        for id in (1, 2):
            try:
                async with looping.bank.producer.coordinated("current", "book") as tx:
                    async with tx.on("book") as connection:
                        await connection.execute(text(f"insert into entry values ({id})"))
                    async with tx.on("current") as connection:
                        await move(connection, -10)
                    if id == 2:
                        raise Stop
            except Stop:
                assert tx.decision is Decision.ROLLBACK
        async with file.connect() as connection:
            found = list(await connection.scalars(text("select id from entry")))
        await file.dispose()
        return found

    assert looping.run(work) == [1]
    assert looping.bank.balances()["current"] == START - 10


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql+asyncpg://nobody@127.0.0.1:1/none", r"open its engine with postgresql\+psycopg://"),
        ("sqlite+aiosqlite:///{folder}/it.db", "registered with an engine for threads"),
    ],
)
def test_what_can_not_be_worked_in_is_refused_before_any_work(
    looping: LoopedBank, tmp_path: Path, url: str, why: str
) -> None:
    bank = looping.bank
    if "asyncpg" in url:
        url = bank.engines["current"].url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
        bank.broker.register("other", create_async_engine(url))
    else:
        bank.broker.register("other", create_engine(f"sqlite:///{tmp_path}/it.db"))

    async def work() -> None:
        with pytest.raises(ConfigError, match=why):
            async with bank.producer.coordinated("current", "other"):
                pytest.fail("entered")  # pragma: no cover

    looping.run(work)
    assert bank.prepared() == []


def test_a_statement_that_is_still_under_way_at_the_end_is_a_no(looping: LoopedBank) -> None:
    async def work() -> None:
        async def slowly(connection: AsyncConnection) -> None:
            await connection.execute(text("select pg_sleep(1)"))

        with pytest.raises(VotedNo, match="still under way"):
            async with looping.bank.producer.coordinated("current", "mortgage") as tx:
                await looping.transfer(tx)
                async with tx.on("current") as connection:
                    late = asyncio.ensure_future(slowly(connection))
                    await asyncio.sleep(0.1)
        await asyncio.gather(late, return_exceptions=True)
        assert tx.decision is Decision.ROLLBACK

    looping.run(work)
    assert (looping.bank.balances(), looping.bank.prepared()) == (UNTOUCHED, [])


def test_a_session_that_was_lost_before_its_vote_is_a_no(looping: LoopedBank) -> None:
    async def work() -> None:
        with pytest.raises(VotedNo):
            async with looping.bank.producer.coordinated("current", "mortgage") as tx:
                await looping.transfer(tx)
                async with tx.on("current", driver=False) as connection:
                    pid = await connection.scalar(text("select pg_backend_pid()"))
                with looping.bank.engines["current"].begin() as other:
                    other.exec_driver_sql(f"select pg_terminate_backend({pid}, 5000)")

    looping.run(work)
    assert (looping.bank.balances(), looping.bank.prepared()) == (UNTOUCHED, [])


def test_a_commit_inside_a_step_is_refused(looping: LoopedBank) -> None:
    async def work() -> None:
        with pytest.raises(TransactionError, match="its work was rolled back"):
            async with looping.bank.producer.coordinated("current", "mortgage") as tx:
                await looping.transfer(tx)
                async with tx.on("mortgage") as connection:
                    await connection.commit()

    looping.run(work)
    assert (looping.bank.balances(), looping.bank.prepared()) == (UNTOUCHED, [])


def test_a_block_is_used_once_and_told_so(looping: LoopedBank) -> None:
    async def work() -> None:
        block = looping.bank.producer.coordinated("current", "mortgage")
        async with block as tx:
            await looping.transfer(tx)
        with pytest.raises(TransactionClosed):
            await tx.send(TRANSFERS, b"late")
        with pytest.raises(TransactionClosed):
            async with block:
                pytest.fail("entered")  # pragma: no cover
        with pytest.raises(TransactionError, match="not part of this transaction"):
            async with looping.bank.producer.coordinated("current") as tx, tx.on("mortgage"):
                pytest.fail("entered")  # pragma: no cover

    looping.run(work)
    assert looping.bank.told() == ["10"]


def test_of_two_tasks_that_enter_a_block_at_once_one_does(looping: LoopedBank) -> None:
    block = looping.bank.producer.coordinated("current", "mortgage")

    async def transfer() -> None:
        async with block as tx:
            await looping.transfer(tx)

    async def work() -> None:
        outcomes = await asyncio.gather(transfer(), transfer(), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), TransactionClosed]

    looping.run(work)
    assert looping.bank.told() == ["10"]
    assert looping.bank.balances() == {"current": START - 10, "mortgage": START + 10}


def test_many_tasks_at_once(looping: LoopedBank) -> None:
    async def transfer(at: int) -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:
            await looping.transfer(tx, str(at))

    async def work() -> None:
        await asyncio.gather(*map(transfer, range(12)))

    looping.run(work)
    assert looping.bank.balances() == {"current": START - 120, "mortgage": START + 120}
    assert sorted(map(int, looping.bank.told())) == list(range(12))
