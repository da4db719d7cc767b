"""Kill each step of a flow at each fact, in a process of its own: who runs the steps again gets one outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos import coordinated, flows, sagas, undone_flows
from tests.chaos.conftest import Worlds
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import Scenario, nothing_more
from tests.chaos.world import MORTGAGE, fresh_world

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

STEP = ("Starting:1", "Started:1", "Closing:1", "Closed:1")
SURE = {
    "begin": ("Declaring:1", "Declared:1"),
    "debit": (*STEP, "Voting:1", "Voted:1"),
    "credit": STEP,
    "audit": (*STEP, "Voting:1", "Voted:1"),
    "note": STEP,
    "take": STEP,
    "settle": ("Naming:1", "Named:1", "Voting:1", "Voted:1", "Settling:1", "Settled:1", "Finishing:1", "Finished:2"),
    "tell": STEP,
    "end": ("Naming:1", "Named:1", "Voting:1", "Voted:2", "Deciding:1", "Decided:1", "Finishing:2", "Finished:2"),
}
"""Points that each step is known to pass."""


def scenario(step: int, *, carried_on: bool) -> Scenario:
    """Kill one step; behind it somebody runs the steps again, or nobody does."""
    name = flows.STEPS[step].__name__
    return Scenario(
        name=f"flow: {name}, {'run again' if carried_on else 'left alone'}",
        before=((flows.ordered, None), *([(flows.Upto(step - 1), None)] if step else [])),
        roles_from=flows.MARK,
        sure=SURE[name],
        run=flows.Program(step),
        after=(flows.carry_on,) if carried_on else (coordinated.recover,),
        copies=1 if carried_on else 2,
        check=flows.flows_agree,
        end=flows.once if carried_on else nothing_more,
    )


SCENARIOS = [scenario(step, carried_on=again) for step in range(len(flows.STEPS)) for again in (True, False)]


@pytest.fixture
def three_houses(server: DatabaseServer, home_database: str, bank_database: str, tmp_path: Path) -> Worlds:
    """Give a maker of worlds whose books lie in three databases."""
    for name in (MORTGAGE, flows.LEDGER):
        server.database(name)
    urls = {name: server.url(name) for name in (MORTGAGE, flows.LEDGER)}
    return lambda: fresh_world(home_database, bank_database, tmp_path, urls)


@pytest.mark.req("IBM-08", "IBM-09", "IBM-38", "IBM-64", "IBM-67")
@pytest.mark.rule("R4", "R9", "R11", "R17")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_whichever_step_is_killed_the_flow_has_one_outcome(
    scenario: Scenario, three_houses: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(scenario, three_houses, seed, 1, pytestconfig)


GIVEN_UP = Scenario(
    name="flow: four steps and back, left alone",
    before=((sagas.found, None),),
    roles_from=undone_flows.MARK,
    sure=(
        *("Started:1", "Worked:1", "Closed:1", "Settled:1", "Closed:2", "Acted:1", "Closed:4", "Decided:1"),
        *("Compensating:1", "Acted:2", "Compensated:1", "Compensated:3", "Worked:2", "Compensated:4", "Marked:1"),
    ),
    run=undone_flows.give_up,
    after=(undone_flows.recover,),
    copies=2,
    check=undone_flows.undone,
    end=nothing_more,
)
RUN_AGAIN = replace(GIVEN_UP, name="flow: four steps and back, run again", after=(undone_flows.give_up,), copies=1)


@pytest.mark.req("CARD-06", "IBM-64")
@pytest.mark.rule("R6")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("scenario", [GIVEN_UP, RUN_AGAIN], ids=lambda each: each.name)
def test_what_a_flow_committed_before_it_rolled_back_is_undone_once(
    scenario: Scenario, houses: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(scenario, houses, seed, 2, pytestconfig)
