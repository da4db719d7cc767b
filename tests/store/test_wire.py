"""How answers are waited for: who is alone looks out for a quick one, and sleeps where they are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tests.scene.looped_shop import while_it_runs
from txsaga.aio.in_loop import in_loop
from txsaga.store.connection import make_engine, parse_url
from txsaga.store.values import byteas, int4
from txsaga.store.wire import Call, LibpqSession

pytestmark = pytest.mark.postgres

QUICK, SLOW = Call("SELECT $1 + 1", [int4(1)]), Call("SELECT $1 + 1 FROM pg_sleep(0.05)", [int4(1)])


@pytest.fixture
def wire(home_url: str) -> Iterator[LibpqSession]:
    engine = make_engine(*parse_url(home_url))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.autocommit = True
        yield LibpqSession(driver)
    engine.dispose()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("call", [QUICK, SLOW])
def test_the_answer_is_the_same_however_it_is_waited_for(wire: LibpqSession, call: Call, alone: bool) -> None:
    assert [wire.exchange([call], alone=alone) for _ in range(3)] == [[[(2,)]]] * 3


def test_only_who_is_alone_looks_out(wire: LibpqSession, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr("os.sched_yield", lambda: looks.append(1))
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 0.02)
    wire.exchange([SLOW])
    assert not looks
    wire.exchange([SLOW], alone=True)
    assert looks


def test_a_session_that_ends_while_it_is_looked_out_for_is_told(wire: LibpqSession, home_url: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        wire.exchange([Call("SELECT pg_terminate_backend(pg_backend_pid()), $1", [int4(1)])], alone=True)


def test_within_a_loop_only_the_task_waits(wire: LibpqSession) -> None:
    rows, turns = asyncio.run(while_it_runs(in_loop(lambda: wire.exchange([SLOW, QUICK, SLOW]))))
    assert rows == [[(2,)]] * 3
    assert turns > 8


def test_within_a_loop_nobody_looks_out(wire: LibpqSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_yield", pytest.fail)
    assert asyncio.run(in_loop(lambda: wire.exchange([SLOW], alone=True))) == [[(2,)]]


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
def test_within_a_loop_a_session_that_ends_is_told(wire: LibpqSession, others: list[Call]) -> None:
    end = Call("SELECT pg_terminate_backend(pg_backend_pid()), $1", [int4(1)])
    with pytest.raises(psycopg.OperationalError):
        asyncio.run(in_loop(lambda: wire.exchange([end, *others])))


def test_within_a_loop_what_can_not_be_prepared_is_told_and_the_session_serves_the_next(wire: LibpqSession) -> None:
    async def work() -> object:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await in_loop(lambda: wire.exchange([Call("SELECT * FROM nowhere", [])]))
        return await in_loop(lambda: wire.exchange([QUICK]))

    assert asyncio.run(work()) == [[(2,)]]


def test_within_a_loop_it_goes_on_while_the_server_takes_nothing_in(wire: LibpqSession) -> None:
    big = Call("SELECT length($1)", [byteas([bytes(32 * 1024 * 1024)])])
    rows, turns = asyncio.run(while_it_runs(in_loop(lambda: wire.exchange([SLOW] * 4 + [big]))))
    assert rows == [[(2,)]] * 4 + [[(32 * 1024 * 1024,)]]
    assert turns > 20
