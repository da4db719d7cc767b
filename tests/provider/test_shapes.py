"""Shapes of DAGs that can be flows, and runs that are tried again, cleared, or ended from outside."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, task, task_group

from tests.provider.house import House
from txsaga.provider import message_flow, step

DAY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def notes(house: House) -> House:
    """Give a database with notes."""
    house.postgres("pg_one", "CREATE TABLE note (what text)")
    return house


def noted(notes: House) -> list[str]:
    """Return what is noted."""
    return [row[0] for row in notes.rows("pg_one", "SELECT what FROM note ORDER BY what")]


@step.python(on="one", hold="journal")
def note(journal: Any, what: str) -> None:
    """Note something."""
    if what == "bad":
        raise ValueError(what)
    journal.execute("INSERT INTO note VALUES (:what)", {"what": what})


def shaped(name: str, build: Any) -> DAG:
    """Make a flow of a shape."""

    @message_flow(dag_id=name, resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def flow() -> None:
        build()

    return flow()


def mapped() -> None:
    note.expand(what=["a", "b", "c"])


def mapped_to_nothing() -> None:
    @task
    def none() -> list[str]:
        return []

    note.expand(what=none())


def branched() -> None:
    @task.branch
    def which() -> str:
        return "left"

    which() >> [note.override(task_id="left")(what="left"), note.override(task_id="right")(what="right")]


def branch_as_a_leaf() -> None:
    @task.branch
    def nowhere() -> None:
        return None

    note(what="first") >> nowhere()


def short_circuit() -> None:
    @task.short_circuit(ignore_downstream_trigger_rules=True)
    def stop() -> bool:
        return False

    note(what="before") >> stop() >> note.override(task_id="after")(what="after")


def grouped() -> None:
    @task_group
    def inner() -> None:
        note(what="in")

    note.override(task_id="out")(what="out") >> inner()


SHAPES = {
    mapped: ["a", "b", "c"],
    mapped_to_nothing: [],
    branched: ["left"],
    branch_as_a_leaf: ["first"],
    short_circuit: ["before"],
    grouped: ["in", "out"],
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_flow_of_any_shape_commits(notes: House, shape: Any) -> None:
    run = notes.run(shaped(shape.__name__, shape))
    assert run.tasks["end"] == "success", run.tasks
    assert noted(notes) == SHAPES[shape]


def test_one_part_of_a_mapped_step_that_fails_rolls_all_of_it_back(notes: House) -> None:
    run = notes.run(shaped("mapped_badly", lambda: note.expand(what=["a", "bad", "c"])))
    assert run.tasks["end"] == "failed"
    assert noted(notes) == []


@pytest.mark.req("CARD-07", "BEYOND-10")
@pytest.mark.rule("R6")
def test_a_cleared_run_is_a_new_life_after_a_rollback_and_refused_after_a_commit(notes: House) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None, start_date=DAY, params={"what": "bad"})
    def cleared() -> None:
        note(what="{{ params.what }}")

    flow = cleared()
    first = notes.run(flow, run_after=DAY, logical_date=DAY)
    begun = first.xcom("begin")
    again = notes.run(flow, {"what": "good"}, run_after=DAY, logical_date=DAY)
    assert (first.state, again.state, first.id) == ("failed", "success", again.id)
    assert again.xcom("begin")["epoch"] == begun["epoch"] + 1
    assert again.xcom("begin")["key"] == begun["key"]
    third = notes.run(flow, {"what": "other"}, run_after=DAY, logical_date=DAY)
    assert third.tasks["begin"] == "failed"
    assert third.state == "failed"
    assert noted(notes) == ["good"]


def test_steps_of_an_epoch_that_is_over_refuse(notes: House) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from txsaga.provider.operators.sql import SqlStep

    flow = shaped("over", lambda: note(what="bad"))
    begun = notes.run(flow).xcom("begin")
    late = SqlStep(task_id="late", on="one", sql="INSERT INTO note VALUES ('late')", flow=begun)
    with pytest.raises(AirflowFailException, match="clear the whole run"):
        late.execute({})
    assert noted(notes) == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_run_that_somebody_marks_while_it_works_is_rolled_back(notes: House, state: str) -> None:
    name = f"marked_{state}"

    @task
    def somebody_marks_the_run(run_id: str | None = None) -> None:
        assert run_id is not None
        mark(name, run_id, state)

    flow = shaped(
        name, lambda: note(what="before") >> somebody_marks_the_run() >> note.override(task_id="after")(what="after")
    )
    run = notes.run(flow)
    assert run.tasks["note"] == "success"
    assert run.tasks["after"] in ("skipped", "None")
    assert run.tasks["end"] == "failed", run.tasks
    assert noted(notes) == []


def mark(dag: str, run: str, state: str) -> None:
    """Mark a run from outside, as the user interface does."""
    from airflow.api.common import mark_tasks
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session

    set_state = getattr(mark_tasks, f"set_dag_run_state_to_{state}")
    with create_session() as session:
        row = SerializedDagModel.get(dag, session=session)
        assert row is not None
        set_state(dag=row.dag, run_id=run, commit=True, session=session)
