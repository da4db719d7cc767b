"""How answers of a user's database are waited for: who is alone looks out, who has others beside him sleeps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from tests.scene.patience import eventually
from txsaga.evidence import libpq
from txsaga.evidence.libpq import SpinWait

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
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 0.01)
    monkeypatch.setattr("txsaga.evidence.libpq.DEBT", 100_000)
    monkeypatch.setattr(libpq, "_lookout", SpinWait())
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
    try:
        eventually(lambda: beside.ident in looks, "the other one looked out")
        assert ask(second) == "SELECT 1"
        assert threading.get_ident() not in looks
    finally:
        beside.join()


def test_who_was_answered_or_left_counts_no_more(open_session: Callable[[], PGconn], looks: list[int]) -> None:
    session = open_session()
    libpq.send(session, "SELECT pg_sleep(0.5)")
    with pytest.raises(libpq.ServerSilent):
        libpq.receive(session, 0.001)
    looks.clear()
    libpq.receive(session)
    assert looks


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_nobody_beside_it() -> None:
    libpq._waiting.add(-1)
    try:
        child = os.fork()
        if not child:
            os._exit(len(libpq._waiting))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        libpq._waiting.discard(-1)
