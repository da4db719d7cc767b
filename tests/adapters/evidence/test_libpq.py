"""How answers of a user's database are waited for: who is alone looks out, who has others beside him sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from txsaga.adapters.evidence import libpq
from txsaga.adapters.lookout import Lookout

pytestmark = pytest.mark.postgres

SLOW = "SELECT pg_sleep(0.05)"


@pytest.fixture
def open_session(foreign_databases: Callable[[], str]) -> Iterator[Callable[[], PGconn]]:
    url, opened = foreign_databases().replace("+psycopg", ""), list[psycopg.Connection]()

    def open() -> PGconn:
        opened.append(psycopg.connect(url, autocommit=True))
        return opened[-1].pgconn

    yield open
    for connection in opened:
        connection.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Name the thread of each look that found nothing yet."""
    seen: list[int] = []
    monkeypatch.setattr("os.sched_yield", lambda: seen.append(threading.get_ident()))
    monkeypatch.setattr("txsaga.adapters.lookout.IMPATIENCE", 0.01)
    monkeypatch.setattr("txsaga.adapters.lookout.VAIN", 1_000)
    monkeypatch.setattr(libpq, "_lookout", Lookout())
    monkeypatch.setattr(libpq, "_waiting", set())
    return seen


def ask(session: PGconn) -> str:
    libpq.send(session, SLOW)
    return libpq.receive(session)[-1].tag


def test_who_is_alone_looks_out(open_session: Callable[[], PGconn], looks: list[int]) -> None:
    assert ask(open_session()) == "SELECT 1"
    assert set(looks) == {threading.get_ident()}


def test_who_has_others_beside_him_sleeps(open_session: Callable[[], PGconn], looks: list[int]) -> None:
    first, second = open_session(), open_session()
    libpq.send(first, "SELECT pg_sleep(0.5)")
    beside = threading.Thread(target=libpq.receive, args=(first,))
    beside.start()
    while beside.ident not in looks:
        time.sleep(0.001)
    assert ask(second) == "SELECT 1"
    assert threading.get_ident() not in looks
    beside.join()


def test_who_was_left_alone_looks_out_again(open_session: Callable[[], PGconn], looks: list[int]) -> None:
    session = open_session()
    with pytest.raises(libpq.FellSilent):
        libpq.send(session, SLOW)
        libpq.receive(session, 0.001)
    looks.clear()
    libpq.receive(session)
    assert looks
