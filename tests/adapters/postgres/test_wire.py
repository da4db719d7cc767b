"""How answers are waited for: who is alone looks out for a quick one, and sleeps where they are slow."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from txsaga.adapters.postgres.connection import make_engine, parse_url
from txsaga.adapters.postgres.values import int4
from txsaga.adapters.postgres.wire import Call, Wire

pytestmark = pytest.mark.postgres

QUICK, SLOW = Call("SELECT $1 + 1", [int4(1)]), Call("SELECT $1 + 1 FROM pg_sleep(0.05)", [int4(1)])


@pytest.fixture
def wire(home_url: str) -> Iterator[Wire]:
    engine = make_engine(*parse_url(home_url))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.autocommit = True
        yield Wire(driver)
    engine.dispose()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("call", [QUICK, SLOW])
def test_the_answer_is_the_same_however_it_is_waited_for(wire: Wire, call: Call, alone: bool) -> None:
    assert [wire.exchange([call], alone=alone) for _ in range(3)] == [[[(2,)]]] * 3


def test_only_who_is_alone_looks_out(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr("os.sched_yield", lambda: looks.append(1))
    monkeypatch.setattr("txsaga.adapters.lookout.IMPATIENCE", 0.02)
    wire.exchange([SLOW])
    assert not looks
    wire.exchange([SLOW], alone=True)
    assert looks


def test_a_session_that_ends_while_it_is_looked_out_for_is_told(wire: Wire, home_url: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        wire.exchange([Call("SELECT pg_terminate_backend(pg_backend_pid()), $1", [int4(1)])], alone=True)
