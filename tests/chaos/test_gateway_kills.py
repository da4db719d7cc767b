"""Clients, three gateways, the engine and the store are killed: nothing is lost, doubled or back from a rollback."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing

import pytest
from sqlalchemy import text

import txsaga
from tests.chaos.gateway_town import BOOKS, COMMIT, GATEWAYS, PORTS, GatewayTown
from tests.chaos.invariants import delivered, not_sound
from tests.chaos.scenarios import CREDITS
from tests.chaos.test_server_killed import kill_all
from tests.chaos.test_transfers import NUMBER, SEED, tidy_up
from tests.chaos.world import World, database
from tests.services.free_port import free_port
from txsaga.embedded.server import EmbeddedServer

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(1800)]
DEFAULT_NUMBER = 60
PATIENCE = 120.0


@pytest.fixture
def world(doomed_world: World) -> World:
    """Give a world on a server that may be killed."""
    return doomed_world


@pytest.mark.req("RMQ-07", "RMQ-08", "RMQ-46", "RMQ-92")
@pytest.mark.hole("H1", "H9")
def test_whoever_is_killed_a_transfer_of_a_foreign_client_is_whole_or_not_there(
    world: World, doomed: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(1_000_000))
    number = int(os.environ.get(NUMBER) or DEFAULT_NUMBER)
    found_town(world, number)

    def kill_store() -> None:
        kill_all(doomed)
        doomed.ensure()

    town = GatewayTown(world, seed, kill_store)
    try:
        town.run(lambda: wait_for_quiet(world))
    finally:
        with capsys.disabled():
            print(f"\n{town}")
    assert booked(world) == delivered(world, CREDITS) == column(world, "SELECT id FROM credit")
    tidy_up(world)
    assert not not_sound(world.home)


def found_town(world: World, number: int) -> None:
    """Make what everybody needs, and say what is wanted."""
    with database(world.bank) as engine, engine.begin() as connection:
        connection.execute(text(BOOKS))
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        broker.create_topic(CREDITS, "transaction", queues=2)
        broker.create_group("savings", max_attempts=None)
    for _ in range(GATEWAYS):
        world.note(PORTS, str(free_port()))
    for id in range(number):
        world.note("wanted", str(id))


def wait_for_quiet(world: World) -> None:
    """Wait until everything is decided and credited."""
    end = time.monotonic() + PATIENCE
    while left := unfinished(world):
        assert time.monotonic() < end, f"not finished within {PATIENCE:g} s: {left}"
        time.sleep(0.3)


def unfinished(world: World) -> list[str]:
    """Return what is undecided, and what is not credited."""
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        if undecided := broker.kernel.store.overview.transactions(undecided=True, limit=100):
            return [str(each) for each in undecided]
    credited = column(world, "SELECT id FROM credit")
    return [id for id in delivered(world, CREDITS) if id not in credited]


def booked(world: World) -> list[str]:
    """Return the transfers that the bank committed."""
    return column(world, f"SELECT id FROM outcome WHERE how = '{COMMIT}'")


def column(world: World, query: str) -> list[str]:
    """Read a column of the bank, sorted."""
    with database(world.bank) as engine, engine.connect() as connection:
        return sorted(connection.scalars(text(query)))
