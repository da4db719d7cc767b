"""Kill each program at each fact it announces, go on as its user would, and see that everything agrees."""

import os

import pytest

from tests.chaos.conftest import Worlds
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import SCENARIOS, Scenario

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

SAMPLE = "TXSAGA_KILL_SAMPLE"
DEFAULT_SAMPLE = 32


@pytest.mark.req("RMQ-01", "RMQ-07", "RMQ-21")
@pytest.mark.sampled(8)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_whatever_is_killed_debits_equal_credits(
    scenario: Scenario,
    worlds: Worlds,
    seed: int,
    pytestconfig: pytest.Config,
) -> None:
    share = max(1, int(os.environ.get(SAMPLE) or DEFAULT_SAMPLE) // len(SCENARIOS))
    kill_all_points(scenario, worlds, seed, share, pytestconfig)
