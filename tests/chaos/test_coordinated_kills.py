"""Kill each coordinated program at each fact: afterwards every database, the messages and the store agree."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.conftest import Worlds
from tests.chaos.coordinated import MORTGAGE
from tests.chaos.coordinated_matrix import COORDINATED
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import Scenario
from tests.chaos.world import World, fresh_world

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

SHARE = 2
"""Points of each program that are killed where nobody asks for all of them."""


@pytest.fixture
def houses(server: DatabaseServer, home_database: str, bank_database: str, tmp_path: Path) -> Worlds:
    """Give a maker of worlds whose books lie in two databases."""
    server.database(MORTGAGE)

    def make() -> AbstractContextManager[World]:
        return fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)})

    return make


@pytest.mark.req("IBM-08", "IBM-09", "IBM-67")
@pytest.mark.rule("R2", "R9", "R12")
@pytest.mark.parametrize("scenario", COORDINATED, ids=lambda scenario: scenario.name)
def test_whoever_is_killed_all_resources_follow_one_decision(
    scenario: Scenario, houses: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(scenario, houses, seed, SHARE, pytestconfig)
