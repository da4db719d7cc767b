"""How the answers of the store are waited for: in a thread, and as a task does in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tests.scene.looped_shop import while_it_runs
from txsaga.store.connection import make_engine, parse_url
from txsaga.store.pipeline import LibpqSession
from txsaga.store.statement import PreparedStatement, StatementCall
from txsaga.wiring.connecting import in_loop

pytestmark = [pytest.mark.postgres, pytest.mark.core]

QUICK, SLOW, LAST = (
    PreparedStatement.of(sql, ["int4"]).call(1)
    for sql in (
        "SELECT $1 + 1",
        "SELECT $1 + 1 FROM pg_sleep(0.05)",
        "SELECT pg_terminate_backend(pg_backend_pid()), $1",
    )
)


@pytest.fixture
def wire(home_url: str) -> Iterator[LibpqSession]:
    engine = make_engine(*parse_url(home_url))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.autocommit = True
        yield LibpqSession(driver)
    engine.dispose()


@pytest.mark.parametrize("call", [QUICK, SLOW])
def test_a_statement_can_be_repeated(wire: LibpqSession, call: StatementCall) -> None:
    assert [wire.exchange([call]) for _ in range(3)] == [[[(2,)]]] * 3


def test_a_session_that_ends_during_a_statement_raises(wire: LibpqSession) -> None:
    with pytest.raises(psycopg.OperationalError):
        wire.exchange([LAST])


def test_within_a_loop_only_the_task_waits(wire: LibpqSession) -> None:
    rows, turns = asyncio.run(while_it_runs(in_loop(lambda: wire.exchange([SLOW, QUICK, SLOW]))))
    assert rows == [[(2,)]] * 3
    assert turns > 8


def test_within_a_loop_a_cancellation_comes_behind_the_answer_and_the_session_serves_the_next(
    wire: LibpqSession,
) -> None:
    heard = []

    async def work() -> None:
        waiting = asyncio.ensure_future(in_loop(lambda: heard.append(wire.exchange([SLOW, SLOW]))))
        for _ in range(2):
            await asyncio.sleep(0.01)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        heard.append(await in_loop(lambda: wire.exchange([QUICK])))

    asyncio.run(work())
    assert heard == [[[(2,)]] * 2, [[(2,)]]]


@pytest.mark.parametrize("others", [[], [QUICK]])
def test_within_a_loop_a_session_that_ends_is_told(wire: LibpqSession, others: list[StatementCall]) -> None:
    with pytest.raises(psycopg.OperationalError):
        asyncio.run(in_loop(lambda: wire.exchange([LAST, *others])))


def test_within_a_loop_what_can_not_be_prepared_is_told_and_the_session_serves_the_next(wire: LibpqSession) -> None:
    async def work() -> object:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await in_loop(lambda: wire.exchange([StatementCall("SELECT * FROM nowhere", [])]))
        return await in_loop(lambda: wire.exchange([QUICK]))

    assert asyncio.run(work()) == [[(2,)]]


def test_within_a_loop_it_goes_on_while_the_server_takes_nothing_in(wire: LibpqSession) -> None:
    big = PreparedStatement.of("SELECT length($1)", ["bytea"]).call(bytes(32 * 1024 * 1024))
    rows, turns = asyncio.run(while_it_runs(in_loop(lambda: wire.exchange([SLOW] * 4 + [big]))))
    assert rows == [[(2,)]] * 4 + [[(32 * 1024 * 1024,)]]
    assert turns > 20
