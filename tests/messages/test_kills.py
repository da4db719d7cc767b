"""SIGKILL of the server and of the producer: what was acknowledged is there, what was decided is seen once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import txsaga
from tests.scene.shop import ORDERS, Shop, closing, says
from tests.scene.stored import Stored
from tests.services.embedded import embedded_server
from txsaga import COMMIT
from txsaga.embedded.server import EmbeddedServer
from txsaga.wiring.connecting import open_store

ROOT = Path(__file__).parents[2]


def sell(url: str, decision: str, point: str) -> int:
    """Run the seller until it is killed at a point; return how it ended."""
    kill = {"TXSAGA_OBSERVERS": "txsaga.testing.kill:observer", "TXSAGA_KILL": point}
    command = [sys.executable, "-m", "tests.scene.seller", url, decision]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **kill}, timeout=60).returncode


@pytest.mark.kill
@pytest.mark.req("RMQ-21", "RMQ-05")
@pytest.mark.parametrize(
    ("point", "state"),
    [
        ("Deciding:1", "prepared"),
        ("Decided:1", "committed"),
        ("Ticking:1", "committed"),
        ("Ticked:1", "committed"),
    ],
)
def test_a_kill_around_a_commit_loses_nothing_and_doubles_nothing(
    shop: Shop, home_url: str, point: str, state: str
) -> None:
    assert sell(home_url, "COMMIT", point) == -signal.SIGKILL
    (left,) = shop.listed()
    assert left.state == state
    shop.producer(checker=says(COMMIT))
    assert shop.check() == (1 if state == "prepared" else 0)
    assert shop.bodies() == ["a chair"]
    assert shop.check() == 0
    assert shop.bodies() == ["a chair"]


@pytest.mark.kill
@pytest.mark.req("RMQ-21", "RMQ-06")
def test_a_kill_right_behind_a_rollback_loses_nothing(shop: Shop, home_url: str, stored: Stored) -> None:
    assert sell(home_url, "ROLLBACK", "Decided:1") == -signal.SIGKILL
    assert stored.rows("SELECT decision FROM op") == [(2,)]
    shop.producer(checker=says(COMMIT))
    assert shop.check() == 0
    assert shop.bodies() == []


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    with embedded_server() as server:
        yield server.database("own")


def kill_all_of(server: EmbeddedServer) -> None:
    """Kill a server with all its processes at once: nobody is left to write anything."""
    main = server.status().pid
    assert main is not None
    children = [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if parent_of(stat) == main]
    assert len(children) > 2
    os.kill(main, signal.SIGKILL)  # first, or it would start them again
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def parent_of(stat: Path) -> int | None:
    """Return the parent of a process, unless that is gone by now."""
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.mark.kill
@pytest.mark.req("RMQ-53", "RMQ-03")
def test_an_acknowledged_half_outlives_its_server(own_server: EmbeddedServer) -> None:
    url = own_server.url("own")
    open_store(url).close()
    Stored(url).rows("ALTER DATABASE own SET synchronous_commit = off")  # what a user's server may say
    with closing(Shop(txsaga.connect(url, roles=False, answering=False, env={}), Stored(url).let_pass)) as shop:
        producer = shop.producer()
        receipts = [producer.prepare_now(ORDERS, str(n).encode()) for n in range(5)]
        kill_all_of(own_server)
        own_server.ensure()
        assert shop.pending() == [receipt.txid for receipt in reversed(receipts)]
        assert shop.view(receipts[-1].txid).prepared
        assert producer.commit(receipts[-1]).won
        assert shop.bodies() == ["4"]
