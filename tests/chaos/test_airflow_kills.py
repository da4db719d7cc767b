"""Kill each part of a running Airflow at each of the nine events of a transfer, and see that it is there or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.airflow_bank import EVENTS, Bank, Victim, bank
from tests.chaos.conftest import DONE
from tests.chaos.tally import Kills

SAMPLE = 1

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.mark.req("IBM-64", "CARD-01")
def test_whoever_is_killed_all_of_a_transfer_is_there_or_none(
    tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    full = pytestconfig.getoption("full_matrix")
    drawn = list(Victim) if full else random.Random(seed).sample(list(Victim), SAMPLE)
    wrong: list[str] = []
    with bank(tmp_path) as house:
        for victim in drawn:
            events = EVENTS if full else (random.Random(f"{seed} {victim}").choice(EVENTS),)
            found = killed_at(house, victim, events)
            done = len(events), len(found)
            pytestconfig.stash[DONE].append(
                Kills(scenario=f"bank_transfer as a DAG: {victim}", points=done[0], killed=done[0], missed=0,
                      wrong=done[1], seed=seed)
            )  # fmt: skip
            wrong += found
    assert not wrong, "\n".join(wrong)


def killed_at(house: Bank, victim: Victim, events: tuple[str, ...]) -> list[str]:
    """Kill somebody at events; return what was wrong."""
    answers = {event: house.killed_at(event, victim) for event in events}
    return [f"{victim} killed at {event}: {why}" for event, why in answers.items() if why]
