"""Money moves between two databases while everybody is killed: debits equal credits, each time."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing

import pytest
from sqlalchemy import text

import txsaga
from tests.chaos import transfers
from tests.chaos.invariants import assert_sound, delivered
from tests.chaos.scenarios import CREDITS
from tests.chaos.world import World, database
from txsaga.checkback.round import CheckBack

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(1800)]

SEED, NUMBER = "TXSAGA_TRANSFER_SEED", "TXSAGA_TRANSFERS"
DEFAULT_NUMBER = 24
PATIENCE = 90.0


@pytest.mark.req("RMQ-07", "RMQ-01", "RMQ-95", "BEYOND-3")
def test_whoever_is_killed_debits_equal_credits(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(1_000_000))
    number = int(os.environ.get(NUMBER) or DEFAULT_NUMBER)
    found_town(world, number)
    town = transfers.Town(world, seed)
    try:
        town.run(lambda: wait_for_quiet(world))
    finally:
        with capsys.disabled():
            print(f"\n{town}")
    debits = world.debits()
    assert debits == credits(world) == delivered(world, CREDITS)
    assert len(debits) == len(set(debits))
    tidy_up(world)
    assert_sound(world, {})


def tidy_up(world: World) -> None:
    """Run one more round: it takes away what was decided by somebody who was killed right behind it."""
    world.let_leases_run_out()
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        CheckBack(broker.kernel, transfers.QUICK).run_once()


def found_town(world: World, number: int) -> None:
    """Make what everybody needs, and say what is wanted."""
    with database(world.bank) as engine, engine.begin() as connection:
        connection.execute(text(transfers.CREDIT))
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        broker.create_topic(CREDITS, "transaction", queues=2)
        broker.create_group("savings", max_attempts=None)
        broker.consumer("savings", [CREDITS]).close()
    for id in range(number):
        world.note("wanted", str(id))


def wait_for_quiet(world: World) -> None:
    """Wait until nobody has anything left to do."""
    end = time.monotonic() + PATIENCE
    while not is_quiet(world):
        assert time.monotonic() < end, f"not quiet within {PATIENCE:g} s"
        time.sleep(0.2)


def is_quiet(world: World) -> bool:
    """Tell whether every transaction is decided, and every message credited."""
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        if broker.kernel.store.overview.transactions(undecided=True, limit=1):
            return False
    return credits(world) == delivered(world, CREDITS)


def credits(world: World) -> list[str]:
    """Read what was credited, sorted."""
    with database(world.bank) as engine, engine.connect() as connection:
        return sorted(connection.scalars(text("SELECT id FROM credit")))
