"""Kill each coordinated program at each fact: afterwards every database, the messages and the store agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.conftest import Worlds
from tests.chaos.coordinated_matrix import COORDINATED
from tests.chaos.houses import MYSQL
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import Scenario
from tests.chaos.members import BROKERS
from tests.chaos.till import service
from tests.chaos.world import MORTGAGE, TILL, World, fresh_world
from tests.services.databases import fresh_name

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(1800)]

SHARE = 1
"""Points of each program that are killed where nobody asks for all of them."""


@pytest.fixture
def places(
    request: pytest.FixtureRequest, houses: Worlds, home_database: str, bank_database: str, tmp_path: Path, kind: str
) -> Worlds:
    """Give a maker of worlds in which something of a certain kind takes part."""

    @contextmanager
    def with_service() -> Iterator[World]:
        folder = tmp_path / fresh_name("t")
        folder.mkdir()
        with (
            service(folder / TILL) as till,
            fresh_world(home_database, bank_database, folder, till=till.url) as world,
        ):
            yield world

    match kind:
        case "postgresql":
            return houses
        case "service":
            return with_service
        case "cluster":
            brokers = dict.fromkeys(BROKERS, home_database)
            return lambda: fresh_world(home_database, bank_database, tmp_path, brokers=brokers)
    url = request.getfixturevalue("mariadb") if kind == MYSQL else "sqlite://"
    return lambda: fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: url})


def named(case: tuple[Scenario, str]) -> str:
    """Name a program by what it does and what takes part."""
    scenario, kind = case
    return f"{scenario.name}, {kind}"


@pytest.mark.req("IBM-08", "IBM-09", "IBM-67")
@pytest.mark.rule("R2", "R9", "R12")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("scenario", "kind"), COORDINATED, ids=map(named, COORDINATED))
def test_whoever_is_killed_all_resources_follow_one_decision(
    scenario: Scenario, kind: str, places: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(replace(scenario, name=named((scenario, kind))), places, seed, SHARE, pytestconfig)
