"""What stays when a flow is rolled back, and what undoes it; retries, and runs that are cleared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import DAG, task

from tests.provider.house import House
from txsaga.provider import FlowBegin, FlowEnd, SqlStep, catch, lane, local, message_flow, publish, step

NOTE = "INSERT INTO note VALUES (:what)"
UNDO = "DELETE FROM note WHERE what = :what"


@pytest.fixture
def notes(house: House) -> House:
    """Give three databases with notes."""
    for name in ("pg_one", "pg_two", "pg_three"):
        house.postgres(name, "CREATE TABLE note (what text)")
    return house


def left(notes: House) -> dict[str, list[str]]:
    """Return what is noted where."""
    found = {name: notes.rows(name, "SELECT what FROM note ORDER BY what") for name in notes.engines}
    return {name: [row[0] for row in rows] for name, rows in found.items()}


def failing(**resources: Any) -> DAG:
    """Make a flow that notes something in each place and fails then."""

    @message_flow(resources=resources, schedule=None, coordinated=True)
    def failing() -> None:
        before: Any = None
        for name in resources:
            noted = step.sql(f"note_{name}", NOTE, on=name, parameters={"what": name})
            if before is not None:
                before >> noted
            before = noted

        @task
        def fail() -> None:
            raise ValueError("no")

        before >> fail()

    return failing()


@pytest.mark.req("IBM-45", "IBM-54")
def test_only_what_settles_by_itself_survives_a_rollback(notes: House) -> None:
    run = notes.run(failing(main="pg_one", lane=lane("pg_two"), local=local("pg_three")))
    assert run.state == "failed"
    assert left(notes) == {"pg_one": [], "pg_two": [], "pg_three": ["local"]}


@pytest.mark.req("CARD-06")
def test_what_committed_by_itself_is_undone_in_reverse_order(notes: House) -> None:
    @message_flow(resources={"one": local("pg_one"), "two": local("pg_two")}, schedule=None)
    def trip() -> None:
        book = [step.sql(f"book_{n}", NOTE, on="one", parameters={"what": n}, compensate=UNDO_LOUD) for n in ("a", "b")]
        broken = step.sql(
            "broken", "INSERT INTO nowhere VALUES (:what)", on="two", parameters={"what": "c"}, compensate=UNDO
        )
        book[0] >> book[1] >> broken

    notes.execute(
        "pg_one",
        "CREATE SEQUENCE IF NOT EXISTS nth",
        "DROP TABLE IF EXISTS undone",
        "CREATE TABLE undone (nth int, what text)",
    )
    run = notes.run(trip())
    assert run.state == "failed"
    assert left(notes)["pg_one"] == []
    assert [row[0] for row in notes.rows("pg_one", "SELECT what FROM undone ORDER BY nth")] == ["b", "a"]


UNDO_LOUD = (
    "WITH gone AS (DELETE FROM note WHERE what = :what RETURNING what) "
    "INSERT INTO undone SELECT nextval('nth'), what FROM gone"
)


@pytest.mark.rule("R4")
def test_a_retry_does_not_do_a_step_again(notes: House) -> None:
    tries: list[int] = []

    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def retried() -> None:
        @step.python(on="one", retries=2, retry_delay=0)
        def once(connection: Any) -> int:
            tries.append(1)
            connection.exec_driver_sql("INSERT INTO note VALUES ('one')")
            if len(tries) < 2:
                raise ValueError("not yet")
            return len(tries)

        once()

    run = notes.run(retried())
    assert run.state == "success", run.tasks
    assert left(notes)["pg_one"] == ["one"]
    assert run.xcom("once") == 2


class Dying(SqlStep):
    """A step whose process dies when the step is done, before Airflow hears of it."""

    def work(self, context: Any, flow: Any) -> object:
        super().work(context, flow)
        raise RuntimeError("killed")


class DyingOnce(SqlStep):
    """The same, but only at the first try."""

    tries: ClassVar[list[int]] = []

    def work(self, context: Any, flow: Any) -> object:
        result = super().work(context, flow)
        self.tries.append(1)
        if len(self.tries) == 1:
            raise RuntimeError("killed")
        return result


@pytest.mark.rule("R4")
@pytest.mark.parametrize("coordinated", [True, False])
def test_a_retry_finds_the_result_of_a_step_that_was_done(notes: House, coordinated: bool) -> None:
    DyingOnce.tries.clear()

    @message_flow(resources={"one": "pg_one"}, coordinated=coordinated, schedule=None)
    def found_again() -> None:
        sql = "INSERT INTO note VALUES ('once') RETURNING what"
        DyingOnce(task_id="once", on="one", sql=sql, retries=1, retry_delay=timedelta(0))

    run = notes.run(found_again())
    assert run.state == "success", run.tasks
    assert len(DyingOnce.tries) == 2
    assert left(notes)["pg_one"] == ["once"]
    assert run.xcom("once") == [{"what": "once"}]


def test_a_task_that_dies_behind_its_step_rolls_the_flow_back(notes: House) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def dying() -> None:
        Dying(task_id="dies", on="one", sql=NOTE, parameters={"what": "x"})

    assert notes.run(dying()).tasks["end"] == "failed"
    assert left(notes)["pg_one"] == []


def test_a_task_that_dies_behind_its_step_is_not_dealt_with(notes: House) -> None:
    @message_flow(resources={"one": "pg_one", "two": "pg_two"}, coordinated=True, schedule=None)
    def dying_and_caught() -> None:
        dies = Dying(task_id="dies", on="one", sql=NOTE, parameters={"what": "x"})
        catch(dies, step.sql("handler", NOTE, on="two", parameters={"what": "handled"}))

    run = notes.run(dying_and_caught())
    assert (run.tasks["handler"], run.tasks["end"]) == ("success", "failed")
    assert left(notes) == {"pg_one": [], "pg_two": [], "pg_three": []}


def test_the_end_waits_for_what_a_handler_does_not_wait_for(notes: House) -> None:
    @message_flow(resources={"one": "pg_one", "two": "pg_two"}, coordinated=True, schedule=None)
    def beside() -> None:
        broken = step.sql("broken", "INSERT INTO nowhere VALUES (1)", on="one")
        slow = step.sql("slow", NOTE, on="one", parameters={"what": "slow"})
        catch([broken, slow], step.sql("handler", NOTE, on="two", parameters={"what": "handled"}))

    made = beside()
    assert {"broken", "slow", "handler"} <= made.get_task("seal").upstream_task_ids
    assert notes.run(made).tasks["end"] == "success"
    assert left(notes) == {"pg_one": ["slow"], "pg_two": ["handled"], "pg_three": []}


@pytest.mark.req("IBM-46", "IBM-53")
def test_without_coordination_what_was_done_first_stays_and_so_does_a_plain_message(notes: House) -> None:
    notes.topic("plain", type="normal")
    notes.topic("joined")

    @message_flow(resources={"one": "pg_one", "two": "pg_two"}, schedule=None)
    def local_by_default() -> None:
        first = step.sql("first", NOTE, on="one", parameters={"what": "first"})
        second = step.sql("second", "INSERT INTO nowhere VALUES (1)", on="two")
        first >> publish("plain", "at once", mode="plain") >> publish("joined", "with the flow") >> second

    run = notes.run(local_by_default())
    assert run.tasks["end"] == "failed"
    assert left(notes)["pg_one"] == ["first"]
    assert (notes.seen("plain"), notes.seen("joined")) == ([b"at once"], [])


HALFWAY = """
import os, signal, warnings
from airflow.sdk import task
from tests.provider.house import put
from txsaga.provider import message_flow, step

@message_flow(resources={"one": "pg_one", "two": "pg_two"}, schedule=None)
def halfway():
    debit, credit = (step.sql(name, "INSERT INTO note VALUES (:what)", on=on, parameters={"what": name})
                     for name, on in (("debit", "one"), ("credit", "two")))

    @task
    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    debit >> dies() >> credit

warnings.simplefilter("ignore")
dag = halfway()
put(dag)
dag.test()
"""


@pytest.mark.req("IBM-03")
def test_without_coordination_a_crash_leaves_what_was_before_it_and_nothing_behind(
    notes: House, tmp_path: Path
) -> None:
    program = tmp_path / "halfway.py"
    program.write_text(HALFWAY)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert left(notes) == {"pg_one": ["debit"], "pg_two": [], "pg_three": []}


@pytest.mark.req("IBM-30", "IBM-58", "IBM-60")
def test_a_failure_that_is_dealt_with_lets_the_flow_commit(notes: House) -> None:
    @message_flow(resources={"one": "pg_one", "two": "pg_two"}, coordinated=True, schedule=None)
    def dealt_with() -> None:
        broken = step.sql("broken", ["INSERT INTO note VALUES ('x')", "INSERT INTO nowhere VALUES (1)"], on="one")
        behind = step.sql("behind", NOTE, on="one", parameters={"what": "behind"})

        @step.python(on="two")
        def handler(connection: Any, errors: list[dict[str, str]]) -> list[str]:
            connection.exec_driver_sql("INSERT INTO note VALUES ('handled')")
            return [each["step"] for each in errors if "nowhere" in each["why"]]

        broken >> behind
        catch(broken, handler())

    run = notes.run(dealt_with())
    assert run.tasks["broken"] == "failed"
    assert run.tasks["behind"] == "upstream_failed"
    assert run.tasks["end"] == "success", run.tasks
    assert left(notes) == {"pg_one": [], "pg_two": ["handled"], "pg_three": []}
    assert run.xcom("handler") == ["broken"]


@pytest.mark.req("IBM-59")
def test_a_handler_gets_the_message_as_it_was(notes: House) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=True, schedule=None)
    def as_it_was() -> None:
        @task
        def received() -> dict[str, str]:
            return {"order": "lamp"}

        @step.python(on="one")
        def tries(connection: Any, message: dict[str, str]) -> None:
            message["order"] = "broken"
            connection.exec_driver_sql("INSERT INTO note VALUES ('tried')")
            raise ValueError("no")

        @step.python(on="one")
        def handles(connection: Any, message: dict[str, str]) -> None:
            connection.exec_driver_sql("INSERT INTO note VALUES (%(what)s)", {"what": message["order"]})

        message = received()
        catch(tries(message), handles(message))

    run = notes.run(as_it_was())
    assert run.tasks["end"] == "success", run.tasks
    assert left(notes)["pg_one"] == ["lamp"]


@pytest.mark.req("IBM-44")
def test_several_beginnings_in_a_dag_are_transactions_of_their_own(notes: House) -> None:
    with DAG("several", schedule=None) as dag:
        for name, sql in (("good", NOTE), ("bad", "INSERT INTO nowhere VALUES (:what)")):
            begun = f"begin_{name}"
            begin = FlowBegin(task_id=begun, coordinated=True, resources=["pg_one"])
            note = SqlStep(task_id=name, flow=begun, on="pg_one", sql=NOTE, parameters={"what": name})
            fails = SqlStep(task_id=f"then_{name}", flow=begun, on="pg_one", sql=sql, parameters={"what": "then"})
            begin.as_setup()  # type: ignore[no-untyped-call]
            begin >> note >> fails >> FlowEnd(task_id=f"end_{name}", flow=begun).as_teardown(setups=begin)
    run = notes.run(dag)
    assert (run.tasks["end_good"], run.tasks["end_bad"]) == ("success", "failed")
    assert run.xcom("begin_good")["txid"] != run.xcom("begin_bad")["txid"]
    assert left(notes)["pg_one"] == ["good", "then"]
