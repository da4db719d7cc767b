"""Timelines are drawn from steps alone: order, lanes, marks, and the legend that comes with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from txsaga.inspect.timeline import (
    LEGEND,
    MAIN_LANE,
    WIDTH,
    TimelineKind,
    TimelinePhase,
    TimelineStep,
    documented,
    draw,
    in_order,
    lanes,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def step(
    what: str,
    kind: TimelineKind = TimelineKind.CHANGE,
    *,
    phase: TimelinePhase = TimelinePhase.STORED,
    lane: str = MAIN_LANE,
    at: int | None = None,
    before: int | None = None,
) -> TimelineStep:
    """Make a step so many seconds after noon."""

    def moment(seconds: int | None) -> datetime | None:
        return None if seconds is None else NOON + timedelta(seconds=seconds)

    return TimelineStep(what=what, kind=kind, phase=phase, lane=lane, at=moment(at), before=moment(before))


def order(*steps: TimelineStep) -> str:
    """Return the order of steps by their names."""
    return " ".join(each.what for each in in_order(steps))


FLOW = [
    step("open"),
    step("first", lane="AUX 1"),
    step("second", lane="AUX 2"),
    step("row"),
    step("first is committed", TimelineKind.FINAL, lane="AUX 1"),
    step("second is rolled back", TimelineKind.NONE, lane="AUX 2"),
    step("committed", TimelineKind.NONE),
]


@pytest.mark.req("IBM-42")
def test_each_lane_shows_change_undo_data_or_none_and_the_legend_says_so() -> None:
    assert draw(FLOW) == [
        "       1 2 3 4 5 6 7",
        "MAIN   x = = x = = -",
        "AUX 1  - x = = x - -",
        "AUX 2  - - x = = - -",
        "x change   = undo data held   - none",
    ]


@pytest.mark.req("IBM-42")
def test_programs_get_the_same_lanes_with_every_step() -> None:
    told = documented(FLOW)
    assert told["lanes"] == [{"lane": lane, "marks": marks} for lane, marks in lanes(FLOW).items()]
    assert told["legend"] == LEGEND
    assert isinstance(told["steps"], list)
    assert [each["step"] for each in told["steps"]] == list(range(1, len(FLOW) + 1))
    assert [each["kind"] for each in told["steps"]][-3:] == ["final change", "none", "none"]


def test_the_main_lane_is_there_even_when_nothing_happened() -> None:
    assert lanes([]) == {MAIN_LANE: ""}


def test_many_steps_go_on_below() -> None:
    drawn = draw([step(str(number)) for number in range(WIDTH + 2)])
    assert [line.split()[0] for line in drawn] == ["1", MAIN_LANE, str(WIDTH + 1), MAIN_LANE, "x"]
    assert drawn[3].split() == [MAIN_LANE, "x", "x"]


def test_known_moments_are_in_order_and_ties_as_the_protocol_has_them() -> None:
    decided, late = step("op", phase=TimelinePhase.DECIDED, at=5), step("late", at=7)
    assert order(late, decided, step("half", at=5)) == "half op late"


def test_a_step_without_a_moment_stands_where_the_protocol_puts_it() -> None:
    known = [step("half", at=1), step("given", phase=TimelinePhase.GIVEN, at=9)]
    assert order(*known, step("op", phase=TimelinePhase.DECIDED)) == "half op given"
    assert (
        order(*known, step("op", phase=TimelinePhase.DECIDED), step("end", phase=TimelinePhase.CLOSED))
        == "half end op given"
    )
    assert order(known[0], step("op", phase=TimelinePhase.DECIDED)) == "half op"
    assert order(step("op", phase=TimelinePhase.DECIDED), step("end", phase=TimelinePhase.CLOSED)) == "end op"


def test_a_step_that_has_a_latest_moment_stands_right_before_it() -> None:
    halves = [step("old", at=1), step("new", at=5), step("op", phase=TimelinePhase.DECIDED, at=6)]
    assert order(*halves, step("taken", phase=TimelinePhase.OPENED, before=5)) == "old taken new op"


def test_a_look_before_the_decision_stays_before_a_decision_without_a_moment() -> None:
    steps = [
        step("half", at=1),
        step("recorded", phase=TimelinePhase.PARKED, at=4),
        step("op", phase=TimelinePhase.DECIDED, before=9),
        step("given", phase=TimelinePhase.GIVEN, at=9),
    ]
    assert order(*steps) == "half recorded op given"
