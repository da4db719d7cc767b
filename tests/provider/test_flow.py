"""A flow by its operators, in DAGs of anybody's making."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms
from sqlalchemy import text

from tests.provider.house import House
from txsaga.provider import FlowBegin, FlowEnd, enclose, lane, message_flow, publish, step
from txsaga.provider.operators.messages import Publish
from txsaga.provider.operators.sql import SqlStep

ACCOUNT = "CREATE TABLE account (id int PRIMARY KEY, cents int NOT NULL)", "INSERT INTO account VALUES (1, 10000)"
AUDIT = "CREATE TABLE audit (what text)"
MOVE = "UPDATE account SET cents = cents + :cents WHERE id = :id"


@pytest.fixture
def bank(house: House) -> House:
    """Give two accounts, an audit, and a topic."""
    house.postgres("pg_current", *ACCOUNT)
    house.postgres("pg_mortgage", *ACCOUNT)
    house.postgres("pg_audit", AUDIT)
    house.topic("transfers")
    return house


def transfer(*, to: int = 1, name: str = "transfer") -> DAG:
    """Make the transfer of a bank; to an account that is not there it fails."""
    with DAG(name, schedule=None) as dag:
        begin = FlowBegin(
            task_id="begin",
            coordinated=True,
            resources={"current": "pg_current", "mortgage": "pg_mortgage", "audit": lane("pg_audit")},
        )
        debit = SqlStep(task_id="debit", on="current", sql=MOVE, parameters={"cents": -2500, "id": 1}, rows=1)
        audit = SqlStep(task_id="audit", on="audit", sql="INSERT INTO audit VALUES ('begun')")
        credit = SqlStep(task_id="credit", on="mortgage", sql=MOVE, parameters={"cents": 2500, "id": to}, rows=1)
        tell = Publish(task_id="tell", topic="transfers", body={"cents": 2500})
        debit >> audit >> lane.commit("audit") >> credit >> tell
        enclose(begin, FlowEnd(task_id="end"))
    return dag


def test_a_flow_commits_all_of_its_work(bank: House) -> None:
    run = bank.run(transfer())
    assert run.state == "success", run.tasks
    assert bank.rows("pg_current", "SELECT cents FROM account") == [(7500,)]
    assert bank.rows("pg_mortgage", "SELECT cents FROM account") == [(12500,)]
    assert bank.rows("pg_audit", "SELECT what FROM audit") == [("begun",)]
    assert bank.seen("transfers") == [b'{"cents": 2500}']


def test_a_flow_that_fails_leaves_its_lane_alone(bank: House) -> None:
    run = bank.run(transfer(to=9))
    assert run.state == "failed"
    assert run.tasks["end"] == "failed"
    assert bank.rows("pg_current", "SELECT cents FROM account") == [(10000,)]
    assert bank.rows("pg_mortgage", "SELECT cents FROM account") == [(10000,)]
    assert bank.rows("pg_audit", "SELECT what FROM audit") == [("begun",)]
    assert bank.seen("transfers") == []


def by_decorator(*, to: int = 1) -> DAG:
    """Make the same transfer as a message flow, with functions that take results."""

    @message_flow(
        coordinated=True,
        resources={"current": "pg_current", "mortgage": "pg_mortgage", "audit": lane("pg_audit")},
        schedule=None,
    )
    def by_words() -> None:
        @step.python(on="current")
        def debit(connection: Any, cents: int) -> int:
            connection.execute(text("UPDATE account SET cents = cents - :cents"), {"cents": cents})
            return cents

        @step.python(on="mortgage", hold="journal")
        def credit(journal: Any, cents: int, params: dict[str, Any] | None = None) -> None:
            journal.execute(MOVE, {"cents": cents, "id": to}, rows=1)

        audit = step.sql("audit", "INSERT INTO audit VALUES (:run)", on="audit", parameters={"run": "{{ run_id }}"})
        moved = debit(2500)
        moved >> audit >> lane.commit("audit")
        credit(moved) >> publish("transfers", {"cents": "{{ ti.xcom_pull('debit') }}"})

    return by_words()


@pytest.mark.req("IBM-32")
@pytest.mark.parametrize("good", [True, False])
def test_a_task_settles_the_lane_that_it_names_and_no_other(bank: House, good: bool) -> None:
    bank.postgres("pg_other", AUDIT)
    named = {name: lane(f"pg_{name}") for name in ("audit", "other")}

    @message_flow(dag_id=f"lanes_{good}".lower(), schedule=None, resources={"current": "pg_current", **named})
    def lanes() -> None:
        note = "INSERT INTO audit VALUES (:what)"
        tasks = [
            step.sql(f"{on}_{what}", note, on=on, parameters={"what": what})
            for what in ("kept", "dropped", "open")
            for on in named
        ]
        for before, after in itertools.pairwise(
            [*tasks[:2], lane.commit("audit"), *tasks[2:4], lane.rollback("audit"), *tasks[4:]]
        ):
            before >> after
        tasks[-1] >> step.sql("last", MOVE, on="current", parameters={"cents": 0, "id": 1 if good else 9}, rows=1)

    run = bank.run(lanes())
    assert run.state == ("success" if good else "failed"), run.tasks
    seen = {on: {what for (what,) in bank.rows(f"pg_{on}", "SELECT what FROM audit")} for on in named}
    assert seen["audit"] == ({"kept", "open"} if good else {"kept"})
    assert seen["other"] == ({"kept", "dropped", "open"} if good else set())


def test_a_message_flow_is_a_dag_with_begin_seal_and_end(bank: House) -> None:
    run = bank.run(by_decorator())
    assert run.state == "success", run.tasks
    assert {"begin", "seal", "end"} < run.tasks.keys()
    assert bank.rows("pg_current", "SELECT cents FROM account") == [(7500,)]
    assert bank.rows("pg_mortgage", "SELECT cents FROM account") == [(12500,)]
    assert bank.rows("pg_audit", "SELECT what FROM audit") == [(run.id,)]
    assert bank.seen("transfers") == [b'{"cents": "2500"}']


def test_a_journal_that_changes_other_rows_rolls_the_flow_back_at_its_end(bank: House) -> None:
    run = bank.run(by_decorator(to=9))
    assert run.state == "failed"
    assert run.tasks["credit"] == "success"
    assert run.tasks["end"] == "failed"
    assert bank.rows("pg_current", "SELECT cents FROM account") == [(10000,)]
    assert bank.seen("transfers") == []


def test_airflow_is_asked_in_the_thread_of_the_task_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    real = InProcessSupervisorComms.send

    def send(self: InProcessSupervisorComms, msg: Any) -> Any:
        asked.add(threading.current_thread().name)
        return real(self, msg)

    monkeypatch.setattr(InProcessSupervisorComms, "send", send)

    @message_flow(schedule=None)
    def talking() -> None:
        @step.python
        def one() -> int:
            return 1

        one()

    assert house.run(talking()).state == "success"
    assert asked == {"MainThread"}
