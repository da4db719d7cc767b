"""Kill the schedule of nine events behind each of them, in one process and across processes: the results are alike."""

from __future__ import annotations

import signal

import pytest

from tests.chaos import child, nine_events
from tests.chaos.conftest import Worlds
from tests.chaos.coordinated import recover
from tests.chaos.invariants import delivered
from tests.chaos.nine_events import END, EVENTS
from tests.chaos.scenarios import CREDITS

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(300)]

HOLDS = [
    pytest.param(None, id="in one process"),
    pytest.param("prepared", id="held"),
    pytest.param("journal", id="journalled"),
]


@pytest.mark.req("IBM-17", "IBM-18", "IBM-19", "IBM-20", "IBM-21", "IBM-22", "IBM-38")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("last", EVENTS)
@pytest.mark.parametrize("hold", HOLDS)
def test_whoever_dies_behind_an_event_the_lane_follows_its_commit_and_main_the_decision(
    houses: Worlds, hold: str | None, last: int
) -> None:
    with houses() as world:
        child.finish(nine_events.order, world)
        *before, dying = nine_events.stages(last, hold)
        for stage in before:
            child.finish(stage, world)
        child._expect(-signal.SIGKILL, child._run(dying, world, {}), dying, world)
        world.let_leases_run_out()
        child.finish(recover, world, copies=2)
        assert nine_events.rows(world) == nine_events.due(last)
        assert delivered(world, CREDITS) == (["nine"] if last == END else [])
        with child.opened(world, {}) as broker:
            assert nine_events.again(broker) == ([] if last == END else ["nine"])
