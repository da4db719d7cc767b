"""Kill a program at its points, or at a seeded sample of them, and count what was not as it must be."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import DONE, Worlds
from tests.chaos.matrix import Scenario
from tests.chaos.tally import Kills
from txsaga.testing.kill import KillPoint, sample


def kill_all_points(scenario: Scenario, worlds: Worlds, seed: int, share: int, config: pytest.Config) -> None:
    """Kill at each point where all are asked for, at `share` of them otherwise; report, and fail if one was wrong."""
    if scenario.sure and not config.getoption("full_matrix"):
        points = [KillPoint.parse(point) for point in scenario.sure]
    else:
        with worlds() as world:
            points = scenario.record(world)
    chosen = points if config.getoption("full_matrix") else sample(points, share, seed)
    missed: list[KillPoint] = []
    failures = {str(point): why for point in chosen if (why := failure(scenario, worlds, point, missed))}
    killed = len(chosen) - len(missed)
    kills = Kills(
        scenario=scenario.name, points=len(points), killed=killed, missed=len(missed), wrong=len(failures), seed=seed
    )
    config.stash[DONE].append(kills)
    assert len(missed) <= 1 + len(chosen) // 4, missed
    assert not failures, "\n\n".join(f"killed at {point}:\n{why}" for point, why in failures.items())


def failure(scenario: Scenario, worlds: Worlds, point: KillPoint, missed: list[KillPoint]) -> str:
    """Kill at a point; return what was wrong afterwards, or nothing. A world that went wrong stays as it is."""
    folder = None
    try:
        with worlds() as world:
            folder = world.folder
            if not scenario.kill(world, point):
                missed.append(point)
    except AssertionError as wrong:
        return f"{wrong}\nfacts: {folder}"
    return ""
