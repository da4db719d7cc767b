"""How a run's tasks are judged, without Airflow."""

from __future__ import annotations

import pytest

from txsaga.provider.operators.flow import RunShape, RunVerdict, judge, left_behind

SEALED = RunShape(steps=["debit", "credit"], seal="seal")
DONE = {"seal": "success", "debit": "success", "credit": "success"}


def test_a_run_commits_when_every_step_is_done() -> None:
    assert judge(DONE, SEALED) == RunVerdict(commit=True)


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "running", "awaiting_input", "up_for_retry", None])
def test_a_step_in_any_other_state_rolls_it_back(state: str | None) -> None:
    verdict = judge({**DONE, "credit": state}, SEALED)
    assert not verdict.commit
    assert "'credit'" in verdict.why


def test_a_step_that_is_not_in_the_run_rolls_it_back() -> None:
    assert not judge({"seal": "success", "debit": "success"}, SEALED).commit


@pytest.mark.parametrize("seal", ["skipped", "upstream_failed", "failed", None])
def test_a_run_without_its_seal_was_ended_from_outside(seal: str | None) -> None:
    assert not judge({**DONE, "seal": seal}, SEALED).commit


def test_a_branch_may_leave_steps_out_where_there_is_a_seal() -> None:
    assert judge({**DONE, "credit": "skipped"}, SEALED).commit
    assert not judge({"debit": "success", "credit": "skipped"}, RunShape(steps=["debit", "credit"])).commit


def test_each_part_of_a_mapped_step_counts() -> None:
    parts = {"seal": "success", "debit": "success", "credit_0": "success", "credit_1": "success"}
    assert judge(parts, SEALED).commit
    verdict = judge({**parts, "credit_1": "failed"}, SEALED)
    assert not verdict.commit
    assert "'credit_1' is failed" in verdict.why


def test_a_step_is_not_taken_for_a_part_of_another() -> None:
    shape = RunShape(steps=["credit", "credit_note"], seal="seal")
    assert not judge({"seal": "success", "credit_note": "success"}, shape).commit


def test_a_failure_counts_as_dealt_with_when_its_handler_is_done() -> None:
    shape = RunShape(
        steps=["debit", "credit", "handler"], seal="seal", handlers={"debit": "handler"}, behind={"debit": ["credit"]}
    )
    states = {"seal": "success", "debit": "failed", "credit": "upstream_failed", "handler": "success"}
    assert judge(states, shape) == RunVerdict(commit=True, handled=("debit",))
    assert not judge({**states, "handler": "failed"}, shape).commit
    assert not judge({**states, "credit": "failed"}, shape).commit


def test_the_first_causes_are_told_and_not_what_lies_behind_them() -> None:
    verdict = judge({**DONE, "debit": "failed", "credit": "upstream_failed"}, SEALED)
    assert verdict.why == "task 'debit' is failed"


@pytest.mark.rule("R4")
def test_what_counts_as_done_without_a_step_of_this_life_is_left_behind_in_an_earlier_one() -> None:
    states = {"debit": "success", "credit_0": "success", "credit_1": "skipped", "tell": "success", "plain": "success"}
    earlier = {"debit", "credit[0]", "credit[1]", "credit[2]", "tell", "gone"}
    assert left_behind(states, earlier, here={"tell", "new"}) == ["credit_0", "debit"]
    assert left_behind(states, set(), here=set()) == []
