"""A step that skips itself is no failure: it left nothing, and the flow can commit without it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from tests.provider.house import House
from txsaga.provider import local, message_flow, publish, step

NOTE = "INSERT INTO note VALUES (%(what)s)"
UNDONE: list[str] = []


def undo(what: str) -> None:
    """Undo what was called."""
    UNDONE.append(what)


@pytest.fixture
def notes(house: House) -> House:
    """Give two databases with notes, and a topic."""
    for name in ("pg_one", "pg_two"):
        house.postgres(name, "CREATE TABLE note (what text)")
    house.topic("told")
    UNDONE.clear()
    return house


@pytest.mark.parametrize("where", ["one", "two", None])
def test_a_flow_commits_without_the_step_that_skipped_itself(notes: House, where: str | None) -> None:
    @message_flow(resources={"one": "pg_one", "two": local("pg_two")}, coordinated=True, schedule=None)
    def skipping() -> None:
        @step.python(on="one")
        def noted(connection: Any) -> None:
            connection.exec_driver_sql(NOTE, {"what": "noted"})

        @step.python(on=where)
        def left_out(connection: Any = None) -> None:
            if connection is not None:
                connection.exec_driver_sql(NOTE, {"what": "left out"})
            raise AirflowSkipException("there is nothing to do")

        noted() >> publish("told", "x")
        left_out() >> publish("told", "behind", name="behind")

    run = notes.run(skipping())
    assert (run.tasks["left_out"], run.tasks["behind"]) == ("skipped", "skipped")
    assert run.state == "success", run.tasks
    assert notes.rows("pg_one", "SELECT what FROM note") == [("noted",)]
    assert notes.rows("pg_two", "SELECT what FROM note") == []
    assert notes.seen("told") == [b"x"]


def test_a_part_of_a_mapped_step_can_skip_itself(notes: House) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def mapped_skipping() -> None:
        @step.python(on="one", hold="journal")
        def each(journal: Any, what: str) -> None:
            if what == "b":
                raise AirflowSkipException("not this one")
            journal.execute("INSERT INTO note VALUES (:what)", {"what": what})

        each.expand(what=["a", "b", "c"])

    run = notes.run(mapped_skipping())
    assert run.tasks["each[1]"] == "skipped"
    assert run.state == "success", run.tasks
    assert notes.rows("pg_one", "SELECT what FROM note ORDER BY what") == [("a",), ("c",)]


@pytest.mark.parametrize("skips", [True, False])
def test_what_skipped_itself_is_not_undone(notes: House, skips: bool) -> None:
    from txsaga.flows.actions import CODE

    def reserve(what: str) -> None:
        if skips:
            raise AirflowSkipException("not needed")

    CODE.register(f"{__name__}.undo", undo)

    @message_flow(schedule=None)
    def undoing() -> None:
        called = step.call("called", reserve, {"what": "slot"}, compensate=undo)
        bad = step.sql("bad", "DELETE FROM nowhere_at_all", on="home", trigger_rule="all_done")
        called >> bad

    run = notes.run(undoing())
    assert run.tasks["called"] == ("skipped" if skips else "success")
    assert run.tasks["end"] == "failed"
    assert UNDONE == ([] if skips else ["slot"])


def test_a_step_that_failed_first_and_skips_then_does_not_keep_its_flow(notes: House) -> None:
    tries: list[int] = []

    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def changing_its_mind() -> None:
        @step.python(on="one", retries=1, retry_delay=timedelta(0))
        def changing(connection: Any) -> None:
            tries.append(1)
            connection.exec_driver_sql(NOTE, {"what": "tried"})
            if len(tries) == 1:
                raise ValueError("not yet")
            raise AirflowSkipException("not needed any more")

        changing()

    run = notes.run(changing_its_mind())
    assert (run.tasks["changing"], run.tasks["end"]) == ("skipped", "success")
    assert notes.rows("pg_one", "SELECT what FROM note") == []
