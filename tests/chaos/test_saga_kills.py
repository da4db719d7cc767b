"""Kill each program of sagas at each fact: afterwards every step stays, or is undone, once."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import Worlds
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import Scenario
from tests.chaos.saga_matrix import SAGAS

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(3600)]

SHARE = 1
"""Points of each program that are killed where nobody asks for all of them."""


@pytest.mark.req("CARD-06", "IBM-64", "IBM-67", "BEYOND-1")
@pytest.mark.rule("R1", "R4", "R6")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("scenario", SAGAS, ids=lambda scenario: scenario.name)
def test_whoever_is_killed_every_step_stays_or_is_undone_once(
    scenario: Scenario, houses: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(scenario, houses, seed, SHARE, pytestconfig)
