"""A message that a server does not take: whoever sends it waits for a bounded time, and stops nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from txsaga.aio import stacks
from txsaga.evidence import libpq

pytestmark = [pytest.mark.postgres, pytest.mark.core]

LONG = "select '" + "x" * 20_000_000 + "'"


@pytest.fixture
def stopped(foreign_databases: Callable[[], str]) -> Iterator[PGconn]:
    """Give a session whose server process stands still."""
    connection = psycopg.connect(foreign_databases().replace("+psycopg", ""), autocommit=True)
    backend = connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        yield connection.pgconn
    finally:
        os.kill(backend, signal.SIGCONT)
        connection.close()


def test_a_thread_waits_for_a_bounded_time(stopped: PGconn) -> None:
    before = time.monotonic()
    with pytest.raises(libpq.ServerSilent, match=r"not all of it was taken within 0\.3 s"):
        libpq.send(stopped, LONG, 0.3)
    assert time.monotonic() - before < 5


def test_a_task_holds_up_none_of_its_loop(stopped: PGconn) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    async def work() -> None:
        beside = asyncio.create_task(turn())
        with pytest.raises(libpq.ServerSilent):
            await stacks.run(lambda: libpq.send(stopped, LONG, 0.5))
        beside.cancel()

    asyncio.run(work())
    assert turns > 10
