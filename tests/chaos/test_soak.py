"""Tables that two write at once, while everybody is killed: nothing is lost, torn or doubled."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from tests.chaos import soaking
from tests.chaos.invariants import delivered
from tests.chaos.lake_programs import LEDGER, clerk, open_tables, read, recover, tables_agree
from tests.chaos.scenarios import CREDITS
from tests.chaos.soaking import DEBITED
from tests.chaos.transfers import Town
from tests.chaos.world import World

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(3600)]

SEED, SECONDS = "TXSAGA_SOAK_SEED", "TXSAGA_SOAK"
SHORT = 10.0
SELDOM = 4.0
ROUNDS = 20


@pytest.mark.req("RMQ-07", "IBM-08")
@pytest.mark.rule("R2", "R7")
def test_whoever_is_killed_tables_messages_and_rows_agree(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(1_000_000))
    end = time.monotonic() + float(os.environ.get(SECONDS) or SHORT)
    with soaking.opened(world) as broker:
        open_tables(clerk(broker))
    town = Town(world, seed, soaking.PARTS)
    town.start()
    try:
        while time.monotonic() < end or not (world.notes("acknowledged") and world.notes("looks")):
            town.kill_somebody(SELDOM)
    finally:
        town.stop()
    come_to_rest(world)
    tables_agree(world)
    written = read(world)[LEDGER]
    assert world.debits() == sorted(str(id) for id in written if id % DEBITED)
    assert world.notes("torn") == []
    assert written and world.notes("looks")
    with capsys.disabled():
        killed = ", ".join(f"{name} {count}" for name, count in sorted(Counter(town.kills).items()))
        looks = len(world.notes("looks"))
        print(f"\n{SEED}={seed}: {len(written)} entries, {looks} looks, {len(town.kills)} kills: {killed}")


def come_to_rest(world: World) -> None:
    """Run the roles until everything is decided, and all of it delivered and published."""
    for _ in range(ROUNDS):
        world.let_leases_run_out()
        with soaking.opened(world) as broker:
            recover(broker, world)
            if not broker.kernel.store.overview.transactions(undecided=True, limit=1):
                return
    left = delivered(world, CREDITS)
    raise AssertionError(f"after {ROUNDS} rounds something is undecided; {len(left)} messages are delivered")
