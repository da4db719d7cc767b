"""A run that is cleared behind its commit amends what it committed, where its flow allows that: all of it, or none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from sqlalchemy import event

from tests.provider.house import House, Run
from txsaga.errors import FlowRefused
from txsaga.provider import ConsumeStep, message_flow, publish, step

DAY = datetime(2026, 1, 1, tzinfo=UTC)
NOTE = "INSERT INTO note VALUES (:what)"


@pytest.fixture
def notes(house: House) -> House:
    """Give a database with notes, and a topic."""
    house.postgres("pg_one", "CREATE TABLE note (what text)")
    house.topic("noted")
    return house


def noting(name: str, **options: Any) -> DAG:
    """Make a flow that notes twice and tells."""

    @message_flow(
        dag_id=name,
        resources={"one": "pg_one"},
        coordinated=True,
        schedule=None,
        start_date=DAY,
        params={"what": "good"},
        **options,
    )
    def flow() -> None:
        first = step.sql("first", NOTE, on="one", parameters={"what": "first {{ params.what }}"})
        second = step.sql(
            "second",
            ["DELETE FROM note WHERE what LIKE 'second%'", NOTE],
            on="one",
            parameters={"what": "second {{ params.what }} {{ ti.xcom_pull('begin')['amends'] }}"},
        )

        @step.python(on="one")
        def check(connection: Any, params: dict[str, Any] | None = None) -> None:
            if params and params["what"] == "bad":
                raise ValueError("bad")

        first >> second >> publish("noted", "{{ params.what }}") >> check()

    return flow()


def run(notes: House, flow: DAG, what: str = "good", cleared: int = 0, **options: Any) -> Run:
    """Run it, as a run that was cleared so often: `dag.test()` makes the run of a day anew instead."""
    from airflow.models.dagrun import DagRun

    def count(mapper: object, connection: object, made: DagRun) -> None:
        made.clear_number = cleared

    event.listen(DagRun, "before_insert", count)
    try:
        return notes.run(flow, {"what": what}, run_after=DAY, logical_date=DAY, **options)
    finally:
        event.remove(DagRun, "before_insert", count)


def noted(notes: House) -> list[str]:
    """Return what is noted."""
    return sorted(row[0] for row in notes.rows("pg_one", "SELECT what FROM note"))


@pytest.mark.req("CARD-07")
@pytest.mark.rule("R4")
def test_a_cleared_run_amends_what_it_committed_and_says_so(notes: House) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    flow = noting("amended", allow_amend=True, outlets=[Asset("amended_notes")])
    begun = run(notes, flow, "good").xcom("begin")
    again = run(notes, flow, "better", 1)
    assert again.state == "success", again.tasks
    amending = again.xcom("begin")
    assert (amending["amends"], amending["key"]) == (begun["id"], begun["key"])
    assert (begun["epoch"], amending["epoch"], begun["amends"]) == (1, 2, None)
    assert noted(notes) == ["first better", "first good", f"second better {begun['id']}"]
    assert sorted(notes.seen("noted")) == [b"better", b"good"]
    with create_session() as session:
        events = [each.extra for each in session.query(AssetEvent).filter_by(source_run_id=again.id)]
    assert [each.get("amends") for each in events] == [None, begun["id"]]


@pytest.mark.rule("R4")
def test_an_amendment_that_fails_leaves_what_it_amends_and_the_next_clearing_amends_that(notes: House) -> None:
    flow = noting("amended_badly", allow_amend=True)
    begun = run(notes, flow, "good").xcom("begin")
    assert run(notes, flow, "bad", 1).tasks["end"] == "failed"
    assert noted(notes) == ["first good", "second good None"]
    third = run(notes, flow, "better", 2).xcom("begin")
    assert (third["epoch"], third["amends"]) == (3, begun["id"])
    assert sorted(notes.seen("noted")) == [b"better", b"good"]


def test_one_clearing_makes_one_amendment(notes: House, capfd: pytest.CaptureFixture[str]) -> None:
    flow = noting("amended_once", allow_amend=True)
    for cleared in (0, 1):
        assert run(notes, flow, f"number {cleared}", cleared).state == "success"
    assert run(notes, flow, "number 2", 1).tasks["begin"] == "failed"
    told = capfd.readouterr()
    assert "since it was cleared; clear the whole run once more to amend that" in told.out + told.err
    assert sorted(notes.seen("noted")) == [b"number 0", b"number 1"]


def test_what_may_not_be_amended_is_refused_and_told_how_it_may(
    notes: House, capfd: pytest.CaptureFixture[str]
) -> None:
    flow = noting("not_amended")
    run(notes, flow, "good")
    assert run(notes, flow, "better", 1).tasks["begin"] == "failed"
    told = capfd.readouterr()
    assert "trigger a new run instead, or set allow_amend=True" in told.out + told.err
    assert noted(notes) == ["first good", "second good None"]


@pytest.mark.rule("R4")
@pytest.mark.parametrize("before", ["good", "bad"])
def test_a_run_that_is_cleared_in_part_does_not_commit_without_the_rest(notes: House, before: str) -> None:
    """The mark stands for what was not cleared: Airflow calls it done, though its work is in no life, or in another."""
    flow = noting(f"cleared_in_part_{before}", allow_amend=True)
    run(notes, flow, before)
    left = noted(notes)
    partly = run(notes, flow, "better", 1, mark_success_pattern="first")
    assert (partly.tasks["first"], partly.tasks["end"]) == ("success", "failed")
    assert noted(notes) == left
    assert notes.seen("noted") == ([b"good"] if before == "good" else [])


def test_a_flow_that_takes_messages_can_not_be_amended() -> None:
    @message_flow(schedule=None, allow_amend=True)
    def taking() -> None:
        ConsumeStep(task_id="take", topics="noted")

    with pytest.raises(FlowRefused, match=r"step 'take' takes messages, .*; leave allow_amend= out"):
        taking()
