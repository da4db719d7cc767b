"""Failure is an error that reached the input; one that was taken in on its way is success."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.planning.planned import flow, step
from txsaga.errors import ConfigError
from txsaga.flows.declaration import Catch, FlowDeclaration, StepMode
from txsaga.provider.planning.outcome import Goes, StepError, StepOutcome, failed, failures, handling, undone

DONE, FAILED, SKIPPED, STARTED = StepOutcome.DONE, StepOutcome.FAILED, StepOutcome.SKIPPED, StepOutcome.STARTED
BROKEN = StepError("work", "the disk is full")

BARE = flow(step("first"), step("work"))
WIRED = flow(step("work", failure="report"), step("report"))
CAUGHT = flow(
    step("outer", propagates=("middle",), catch=Catch(to="handler")),
    step("middle", propagates=("work",)),
    step("work"),
    step("handler"),
)
DROPPED = flow(step("outer", propagates=("work",), catch=Catch()), step("work"))
SHARED = flow(
    step("one", failure="report"),
    step("outer", propagates=("work",), catch=Catch()),
    step("work", failure="report"),
    step("report"),
)
NESTED = flow(
    step("outer", propagates=("inner",), catch=Catch(to="last")),
    step("inner", propagates=("work",), catch=Catch(to="first")),
    step("work"),
    step("first"),
    step("last"),
)
TWO_CATCHES = flow(
    step("one", catch=Catch(to="handler")),
    step("outer", propagates=("work",), catch=Catch()),
    step("work", catch=Catch(to="handler")),
    step("handler"),
)


@pytest.mark.req("IBM-58")
def test_a_wired_failure_path_gets_the_message_as_before_the_step_and_the_errors() -> None:
    found = handling(WIRED, BROKEN)
    assert (found.goes, found.to, found.message_before) == (Goes.FAILURE_PATH, "report", "work")
    assert found.errors == (BROKEN,)


@pytest.mark.req("IBM-58", "IBM-60")
def test_without_a_failure_path_the_error_is_thrown_and_the_message_is_as_it_was_received() -> None:
    found = handling(BARE, BROKEN)
    assert (found.goes, found.to, found.message_before, found.errors) == (Goes.THROWN, None, None, (BROKEN,))


@pytest.mark.req("IBM-59")
def test_a_catch_handler_gets_the_message_as_it_was_before_the_try() -> None:
    found = handling(CAUGHT, BROKEN)
    assert (found.goes, found.to, found.message_before, found.errors) == (Goes.CATCH, "handler", "outer", (BROKEN,))


@pytest.mark.req("IBM-59")
def test_a_catch_tries_the_step_s_own_work_too() -> None:
    found = handling(CAUGHT, StepError("outer", "no"))
    assert (found.goes, found.to) == (Goes.CATCH, "handler")


@pytest.mark.req("IBM-59")
def test_a_catch_without_a_handler_drops_the_message() -> None:
    found = handling(DROPPED, BROKEN)
    assert (found.goes, found.to, found.message_before) == (Goes.DROPPED, None, "outer")
    assert not failed(DROPPED, {"outer": DONE, "work": FAILED})


@pytest.mark.req("IBM-58", "IBM-59")
def test_the_own_failure_path_comes_before_a_catch() -> None:
    assert handling(SHARED, BROKEN).to == "report"


def test_the_nearest_catch_takes_the_error_and_the_next_one_what_its_handler_throws() -> None:
    assert handling(NESTED, BROKEN).to == "first"
    again = handling(NESTED, StepError("first", "again"), earlier=(BROKEN,))
    assert (again.goes, again.to, again.message_before) == (Goes.CATCH, "last", "outer")
    assert again.errors == (BROKEN, StepError("first", "again"))
    assert handling(NESTED, StepError("last", "too")).goes is Goes.THROWN


def test_an_error_of_no_step_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no step 'elsewhere'"):
        handling(BARE, StepError("elsewhere", "no"))


@pytest.mark.parametrize(
    ("of", "outcomes", "says"),
    [
        pytest.param(BARE, {"first": DONE, "work": DONE}, (), marks=pytest.mark.req("IBM-30")),
        pytest.param(
            BARE,
            {"first": DONE, "work": FAILED},
            ("the error of step 'work' reached the input",),
            marks=pytest.mark.req("IBM-30", "IBM-60"),
        ),
        pytest.param(WIRED, {"work": FAILED, "report": DONE}, (), marks=pytest.mark.req("IBM-30", "IBM-58")),
        pytest.param(WIRED, {"work": DONE}, (), marks=pytest.mark.req("IBM-58")),
        pytest.param(
            WIRED,
            {"work": FAILED},
            ("the error of step 'work' goes to step 'report', which did not run",),
            marks=pytest.mark.req("IBM-30"),
        ),
        pytest.param(
            WIRED,
            {"work": FAILED, "report": SKIPPED},
            ("the error of step 'work' goes to step 'report', which did not run",),
        ),
        pytest.param(
            WIRED,
            {"work": FAILED, "report": FAILED},
            ("the error of step 'report' reached the input",),
            marks=pytest.mark.req("IBM-58"),
        ),
        pytest.param(
            CAUGHT,
            {"outer": DONE, "middle": FAILED, "work": FAILED, "handler": DONE},
            (),
            marks=pytest.mark.req("IBM-59", "IBM-60", "IBM-30"),
        ),
        pytest.param(
            CAUGHT,
            {"outer": DONE, "work": FAILED, "handler": FAILED},
            ("the error of step 'handler' reached the input",),
            marks=pytest.mark.req("IBM-60"),
        ),
        pytest.param(NESTED, {"outer": DONE, "inner": DONE, "work": FAILED, "first": FAILED, "last": DONE}, ()),
        pytest.param(
            SHARED,
            {"one": FAILED, "outer": DONE, "work": DONE, "report": FAILED},
            ("the error of step 'report' reached the input",),
        ),
        pytest.param(SHARED, {"one": DONE, "outer": DONE, "work": FAILED, "report": FAILED}, ()),
        pytest.param(
            SHARED,
            {"one": FAILED, "outer": DONE, "work": FAILED, "report": FAILED},
            ("the error of step 'report' reached the input",),
        ),
        pytest.param(TWO_CATCHES, {"one": DONE, "outer": DONE, "work": FAILED, "handler": FAILED}, ()),
        pytest.param(
            TWO_CATCHES,
            {"one": FAILED, "outer": DONE, "work": DONE, "handler": FAILED},
            ("the error of step 'handler' reached the input",),
        ),
        pytest.param(
            BARE,
            {"first": DONE, "work": STARTED},
            ("step 'work' was started and has told nothing since",),
            marks=pytest.mark.req("IBM-30"),
        ),
        pytest.param(BARE, {"first": DONE}, ("step 'work' has no record",), marks=pytest.mark.req("IBM-30")),
        pytest.param(BARE, {"first": DONE, "work": SKIPPED}, ()),
        pytest.param(CAUGHT, {"outer": DONE, "middle": DONE}, ("step 'work' has no record",)),
        pytest.param(CAUGHT, {"outer": SKIPPED}, ()),
        pytest.param(CAUGHT, {"outer": DONE, "middle": FAILED, "handler": DONE}, ()),
        pytest.param(
            flow(step("a", failure="f"), step("f", propagates=("g",)), step("g")),
            {"a": FAILED, "f": DONE},
            ("step 'g' has no record",),
        ),
    ],
)
def test_a_flow_is_judged_by_what_is_recorded_of_its_steps(
    of: FlowDeclaration, outcomes: dict[str, StepOutcome], says: tuple[str, ...]
) -> None:
    assert tuple(failures(of, outcomes)) == says
    assert failed(of, outcomes) is bool(says)


@pytest.mark.req("IBM-60")
@pytest.mark.parametrize(("catch", "outcome"), [(Catch(to="handler"), False), (Catch(), False), (None, True)])
def test_the_same_error_fails_the_flow_unless_it_is_caught(catch: Catch | None, outcome: bool) -> None:
    of = flow(step("outer", propagates=("work",), catch=catch), step("work"), step("handler", propagates=()))
    assert failed(of, {"outer": DONE, "work": FAILED, "handler": DONE}) is outcome


COMMITTING = flow(
    step("outer", propagates=("middle",), catch=Catch(), mode=StepMode.COMMIT),
    step("middle", propagates=("work",), mode=StepMode.COMMIT),
    step("work", mode=StepMode.COMMIT),
    step("beside", mode=StepMode.COMMIT),
)


@pytest.mark.req("IBM-55")
def test_a_committing_step_is_undone_by_an_error_that_passed_through_it() -> None:
    assert undone(COMMITTING, {"outer": DONE, "middle": DONE, "work": FAILED, "beside": DONE}) == ("middle", "work")
    assert undone(COMMITTING, {"outer": DONE, "middle": DONE, "work": DONE, "beside": DONE}) == ()


@pytest.mark.req("IBM-55", "IBM-58")
def test_an_error_that_a_failure_path_took_in_passes_through_nobody() -> None:
    of = flow(
        step("outer", propagates=("work",), mode=StepMode.COMMIT),
        step("work", failure="report"),
        step("report"),
    )
    assert undone(of, {"outer": DONE, "work": FAILED, "report": DONE}) == ()
    assert undone(of, {"outer": DONE, "work": FAILED, "report": FAILED}) == ("outer",)


OUTCOMES = st.fixed_dictionaries({}, optional={name: st.sampled_from(StepOutcome) for name in "abcd"})
CALLS = st.sets(st.sampled_from("bcd"), max_size=3)


def drawn(calls: set[str], catch: Catch | None, failure: str | None) -> FlowDeclaration:
    """Make a flow whose paths run forwards, so that none comes back."""
    return flow(
        step("a", propagates=tuple(sorted(calls - {failure})), catch=catch, failure=failure),
        step("b", propagates=("c",)),
        step("c"),
        step("d"),
    )


@pytest.mark.req("IBM-30")
@given(CALLS, st.sampled_from([None, Catch(), Catch(to="d")]), st.sampled_from([None, "d"]), OUTCOMES)
def test_a_flow_succeeds_only_if_nothing_failed_or_all_of_it_was_taken_in(
    calls: set[str], catch: Catch | None, failure: str | None, outcomes: dict[str, StepOutcome]
) -> None:
    of = drawn(calls, catch, failure)
    if STARTED in outcomes.values():
        assert failed(of, outcomes)
    if not failed(of, outcomes):
        for name in (name for name, outcome in outcomes.items() if outcome is FAILED):
            assert catch or (name == "a" and failure)
        assert "a" in outcomes


@pytest.mark.req("IBM-30")
@given(CALLS, st.sampled_from([None, Catch(), Catch(to="d")]), st.sampled_from([None, "d"]))
def test_a_flow_whose_steps_are_all_done_succeeded(calls: set[str], catch: Catch | None, failure: str | None) -> None:
    assert not failed(drawn(calls, catch, failure), dict.fromkeys("abcd", DONE))
