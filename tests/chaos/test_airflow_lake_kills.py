"""Kill somebody at facts of a run that publishes tables, a message and a row: all of it is there, or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.airflow_bank import Victim
from tests.chaos.airflow_lake import lake
from tests.chaos.conftest import DONE
from tests.chaos.tally import Kills

SAMPLE = 1
OTHERS = (Victim.DATABASE, Victim.WORKER, Victim.ENGINE, Victim.SCHEDULER)
EVERY = 5
"""At so many facts' distance somebody else is killed, too."""

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(14_400)]


@pytest.mark.req("IBM-64", "CARD-03")
def test_whoever_is_killed_tables_message_and_row_are_there_together_or_not(
    tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    with lake(tmp_path) as house:
        points = list(kills(house.points()))
        full = pytestconfig.getoption("full_matrix")
        drawn = points if full else random.Random(seed).sample(points, SAMPLE)
        answers = {(point, victim): house.killed_at(point, victim) for point, victim in drawn}
    wrong = [f"{victim} killed at {point}: {why}" for (point, victim), why in answers.items() if why]
    missed = sum(why is None for why in answers.values())
    figures = {"points": len(points), "killed": len(drawn) - missed, "missed": missed, "wrong": len(wrong)}
    pytestconfig.stash[DONE].append(Kills(scenario="lake_publish as a DAG", seed=seed, **figures))
    assert not wrong, "\n".join(wrong)


def kills(points: Sequence[str]) -> Iterator[tuple[str, Victim]]:
    """Yield who is killed where: at each fact the process whose fact it is, at some of them others."""
    for at, point in enumerate(points):
        yield point, Victim.TASK
        if at % EVERY == 0:
            yield point, OTHERS[at // EVERY % len(OTHERS)]
