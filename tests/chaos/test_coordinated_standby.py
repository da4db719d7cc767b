"""The store, or a resource, is down when something begins: it is held, and goes on when they are back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import txsaga
from tests.chaos import child
from tests.chaos.agreement import agreed
from tests.chaos.coordinated import BOTH, move, recover, teller
from tests.chaos.test_server_killed import kill_all
from tests.chaos.world import MORTGAGE, World, fresh_world
from tests.services.embedded import embedded_server
from txsaga.broker import Broker
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import StoreUnavailable
from txsaga.messages.producer import Producer
from txsaga.resources.two_phase import started

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.req("IBM-49")]

LONG = 60.0


@pytest.fixture(scope="module")
def doomed() -> Iterator[EmbeddedServer]:
    """Give a server that may be killed."""
    with embedded_server() as server:
        for name in ("home", MORTGAGE):
            server.database(name)
        yield server


@pytest.fixture
def at_home(doomed: EmbeddedServer, bank_database: str, server: EmbeddedServer, tmp_path: Path) -> Iterator[World]:
    """Give a world whose store may be killed."""
    server.database(MORTGAGE)
    with fresh_world(doomed.url("home"), bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)}) as made:
        yield made


@pytest.fixture
def abroad(doomed: EmbeddedServer, home_database: str, bank_database: str, tmp_path: Path) -> Iterator[World]:
    """Give a world one of whose databases may be killed."""
    with fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: doomed.url(MORTGAGE)}) as made:
        yield made


def pays(producer: Producer, world: World, key: str | None, patience: float = 0.0) -> None:
    """Move money once."""
    with producer.coordinated(*BOTH, key=key, patience=patience) as tx:
        move(tx, "1")
    world.note("acknowledged", f"1 {tx.txid}")


def held_while_down(doomed: EmbeddedServer, work: Callable[[], object]) -> None:
    """Begin with some work while a server is down; it is done when the server is back."""
    held = started(work)
    assert not held.done()
    doomed.ensure()
    held.result(LONG)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", [None, "rent"])
def test_a_transaction_is_held_while_its_store_is_down(doomed: EmbeddedServer, at_home: World, key: str | None) -> None:
    with child.opened(at_home, {}) as broker:
        producer = teller(broker)
        kill_all(doomed)
        held_while_down(doomed, lambda: pays(producer, at_home, key, LONG))
        recover(broker, at_home)
    agreed(*BOTH)(at_home)
    assert at_home.notes("acknowledged")


def test_a_program_waits_for_its_store_where_it_says_so(doomed: EmbeddedServer, at_home: World) -> None:
    kill_all(doomed)
    with pytest.raises(StoreUnavailable):
        txsaga.connect(at_home.home, roles=False, answering=False, env={})
    opened: list[Broker] = []

    def connect() -> None:
        opened.append(txsaga.connect(at_home.home, roles=False, answering=False, standby=LONG, env={}))

    held_while_down(doomed, connect)
    (broker,) = opened
    assert broker.create_topic("orders").name == "orders"
    broker.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("known", [False, True], ids=["nobody asked it yet", "it was there before"])
def test_a_transaction_is_held_while_a_resource_is_down(doomed: EmbeddedServer, abroad: World, known: bool) -> None:
    with child.opened(abroad, {}) as broker:
        producer = teller(broker)
        if known:
            broker.kernel.participant(MORTGAGE)
        kill_all(doomed)
        with pytest.raises(StoreUnavailable):
            pays(producer, abroad, None)
        held_while_down(doomed, lambda: pays(producer, abroad, None, LONG))
        abroad.let_leases_run_out()
        recover(broker, abroad)
    agreed(*BOTH)(abroad)
    assert len(abroad.notes("acknowledged")) == 1
