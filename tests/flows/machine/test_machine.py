"""Random programs on the whole engine: everything visible is what the model says, whoever died or stalled where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.flows.machine.programs import DAY, LITE, POSTGRES, Program
from tests.flows.machine.town import Town
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.slow]

FEW, MANY = 20, 840
"""Days of six programs each: 120, or 5,040."""
SEED = int(os.environ.get("TXSAGA_PROGRAM_SEED") or 37)
SHRINKS = os.environ.get("TXSAGA_PROGRAM_SHRINKS") != "0"
"""Whether a failure is made small; that takes minutes."""


@pytest.fixture
def town(home_url: str, foreign_databases: Callable[[], str], tmp_path: Path) -> Iterator[Town]:
    """Give one town for all programs."""
    open_store(home_url).close()
    urls = {name: foreign_databases() for name in POSTGRES}
    town = Town(home_url, {**urls, LITE: f"sqlite:///{tmp_path / 'lite.db'}"})
    yield town
    town.close()


@pytest.mark.timeout(3_600)
@pytest.mark.rule("R1", "R2", "R3", "R4", "R6", "R9", "R12", "R17")
def test_whatever_is_seen_at_the_end_is_what_the_model_says(town: Town, pytestconfig: pytest.Config) -> None:
    many = MANY if pytestconfig.getoption("full_matrix") else FEW
    print(f"TXSAGA_PROGRAM_SEED={SEED}, {6 * many} programs")

    @seed(SEED)
    @settings(
        max_examples=many,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if SHRINKS else [Phase.generate],
    )
    @given(day=DAY)
    def play(day: tuple[Program, ...]) -> None:
        assert not (wrong := town.play(day)), "\n\n".join(wrong)

    play()
