"""Kill each program at each fact it announces, go on as its user would, and see that everything agrees."""

import os
import random

import pytest

from tests.chaos.conftest import DONE, Kills, Worlds
from tests.chaos.matrix import SCENARIOS, Scenario
from txsaga.testing.kill import KillPoint, sample

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

SAMPLE = "TXSAGA_KILL_SAMPLE"
SEED = "TXSAGA_KILL_SEED"
DEFAULT_SAMPLE = 32


@pytest.fixture(scope="session")
def seed() -> int:
    """Give the seed of this session's sample; set TXSAGA_KILL_SEED to see the same again."""
    return int(os.environ.get(SEED) or random.randrange(10_000))


@pytest.mark.req("RMQ-01", "RMQ-07", "RMQ-21")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_whatever_is_killed_debits_equal_credits(
    scenario: Scenario,
    worlds: Worlds,
    seed: int,
    pytestconfig: pytest.Config,
) -> None:
    with worlds() as world:
        points = scenario.record(world)
    chosen = points
    if not pytestconfig.getoption("full_matrix"):
        share = max(1, int(os.environ.get(SAMPLE) or DEFAULT_SAMPLE) // len(SCENARIOS))
        chosen = sample(points, share, seed)
    missed: list[KillPoint] = []
    failures = {str(point): why for point in chosen if (why := failure(scenario, worlds, point, missed))}
    killed = len(chosen) - len(missed)
    kills = Kills(
        scenario=scenario.name, points=len(points), killed=killed, missed=len(missed), wrong=len(failures), seed=seed
    )
    pytestconfig.stash[DONE].append(kills)
    assert len(missed) <= 1 + len(chosen) // 4, missed
    assert not failures, "\n\n".join(f"killed at {point}:\n{why}" for point, why in failures.items())


def failure(scenario: Scenario, worlds: Worlds, point: KillPoint, missed: list[KillPoint]) -> str:
    """Kill at a point; return what was wrong afterwards, or nothing."""
    with worlds() as world:
        try:
            if not scenario.kill(world, point):
                missed.append(point)
        except AssertionError as wrong:
            return f"{wrong}\nfacts: {world.folder}"
    return ""
