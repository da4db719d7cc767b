"""Kill somebody at facts of a run that publishes tables, a message and a row: all of it is there, or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.airflow_bank import Victim
from tests.chaos.airflow_lake import Lake, lake
from tests.chaos.conftest import DONE
from tests.chaos.tally import Kills

TRIES = 3
"""Facts that are tried until one of them comes again and somebody is killed there."""
OTHERS = (Victim.DATABASE, Victim.WORKER, Victim.ENGINE, Victim.SCHEDULER)
TASKS = ("begin", "books", "books/driver", "audit", "report", "publish_lake_books", "end")
SURE = [f"{task} {number}" for task in TASKS for number in (1, 2)]
"""Facts that each run is known to pass: a sample needs no run before that finds them."""
EVERY = 5
"""At so many facts' distance somebody else is killed, too."""

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(14_400)]


@pytest.mark.req("IBM-64", "CARD-03")
def test_whoever_is_killed_tables_message_and_row_are_there_together_or_not(
    tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    with lake(tmp_path) as house:
        full = pytestconfig.getoption("full_matrix")
        points = list(kills(house.points() if full else SURE))
        answers = dict(killed(house, points if full else random.Random(seed).sample(points, TRIES), enough=not full))
    wrong = [f"{victim} killed at {point}: {why}" for (point, victim), why in answers.items() if why]
    missed = sum(why is None for why in answers.values())
    figures = {"points": len(points), "killed": len(answers) - missed, "missed": missed, "wrong": len(wrong)}
    pytestconfig.stash[DONE].append(Kills(scenario="lake_publish as a DAG", seed=seed, **figures))
    assert not wrong, "\n".join(wrong)
    assert figures["killed"] > 0 and missed <= TRIES + len(answers) // 10, f"{missed} of {len(answers)} never came"


Kill = tuple[str, Victim]


def killed(house: Lake, drawn: Sequence[Kill], *, enough: bool) -> Iterator[tuple[Kill, str | None]]:
    """Yield what was found behind each kill; where one is enough, until somebody was killed."""
    for point, victim in drawn:
        answer = house.killed_at(point, victim)
        yield (point, victim), answer
        if enough and answer is not None:
            return


def kills(points: Sequence[str]) -> Iterator[Kill]:
    """Yield who is killed where: at each fact the process whose fact it is, at some of them others."""
    for at, point in enumerate(points):
        yield point, Victim.TASK
        if at % EVERY == 0:
            yield point, OTHERS[at // EVERY % len(OTHERS)]
