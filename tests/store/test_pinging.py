"""A pooled connection is asked whether it lives only when it has lain there for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from txsaga.store.connection import FRESH, parse_url, ping_idle

pytestmark = [pytest.mark.postgres, pytest.mark.core]


class Clock:
    """A clock that moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give a clock."""
    return Clock()


@pytest.fixture
def engine(home_url: str, clock: Clock) -> Iterator[Engine]:
    """Give a pool of one connection."""
    engine = create_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
    ping_idle(engine, clock)
    yield engine
    engine.dispose()


def session(engine: Engine) -> int:
    """Return the process that serves the connection."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def asked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count how often a connection is asked."""
    pings: list[object] = []
    ping = engine.dialect.do_ping

    def counted(connection: object) -> bool:
        pings.append(connection)
        return bool(ping(connection))  # type: ignore[arg-type]

    monkeypatch.setattr(engine.dialect, "do_ping", counted)
    return pings


def test_only_a_connection_that_has_lain_there_is_asked(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = asked(engine, monkeypatch)
    first = session(engine)
    clock.now += FRESH / 2
    assert session(engine) == first
    assert pings == []
    clock.now += FRESH * 2
    assert session(engine) == first
    assert len(pings) == 1


def test_one_that_died_while_it_lay_there_is_replaced_without_a_word(
    engine: Engine, clock: Clock, home_url: str
) -> None:
    first = session(engine)
    other = create_engine(parse_url(home_url)[0], isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": first})
    other.dispose()
    clock.now += FRESH * 2
    assert session(engine) != first
