"""The result of a step that was done is handed on by the retry of its task, whatever Airflow can hand on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.sdk.serde import deserialize

from tests.provider.house import House
from txsaga.errors import FlowRefused
from txsaga.provider import SparkStep, SqlStep, message_flow, step
from txsaga.provider.operators.task import JoinedFlow, find_result, keep_result

AGAIN: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}
NOTED = "INSERT INTO note VALUES ('once') RETURNING what, 2.50::numeric AS price, date '2026-02-03' AS day"


@pytest.fixture
def notes(house: House) -> House:
    """Give a database with notes."""
    house.postgres("pg_one", "CREATE TABLE note (what text)")
    return house


class DyingOnce(SqlStep):
    """A step whose process dies when the step is done, at its first try."""

    tries: ClassVar[list[int]] = []

    def work(self, context: Any, flow: JoinedFlow) -> object:
        result = super().work(context, flow)
        self.tries.append(1)
        if len(self.tries) == 1:
            raise RuntimeError("killed")
        return result


@pytest.mark.rule("R4")
@pytest.mark.parametrize("coordinated", [True, False])
def test_a_retry_hands_on_decimals_and_dates_as_the_first_attempt_would(notes: House, coordinated: bool) -> None:
    DyingOnce.tries.clear()

    @message_flow(resources={"one": "pg_one"}, coordinated=coordinated, schedule=None)
    def exact() -> None:
        DyingOnce(task_id="once", on="one", sql=NOTED, **AGAIN)

    run = notes.run(exact())
    assert run.state == "success", run.tasks
    assert len(DyingOnce.tries) == 2
    assert notes.rows("pg_one", "SELECT what FROM note") == [("once",)]
    assert deserialize(run.xcom("once")) == [{"what": "once", "price": Decimal("2.50"), "day": date(2026, 2, 3)}]


@pytest.mark.parametrize("coordinated", [True, False])
def test_a_result_that_can_not_be_handed_on_fails_the_step_before_it_is_done(
    notes: House, coordinated: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=coordinated, schedule=None)
    def opaque() -> None:
        @step.python(on="one", **AGAIN)
        def made(connection: Any) -> object:
            connection.exec_driver_sql("INSERT INTO note VALUES ('x')")
            return sys

        @step.python(on="one", do_xcom_push=False)
        def kept_to_itself(connection: Any) -> object:
            return sys

        kept_to_itself() >> made()

    run = notes.run(opaque())
    assert (run.tasks["kept_to_itself"], run.tasks["made"]) == ("success", "failed")
    assert run.tries()["made"] == 1
    assert notes.rows("pg_one", "SELECT what FROM note") == []
    told = capfd.readouterr()
    assert "the step returns a module that can't be handed on" in told.out + told.err


@pytest.mark.parametrize("coordinated", [True, False])
def test_a_result_that_is_too_large_fails_the_step_before_it_is_done(
    notes: House, coordinated: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    @message_flow(resources={"one": "pg_one"}, coordinated=coordinated, schedule=None, default_args=AGAIN)
    def large() -> None:
        @step.python(on="one", max_result=1000)
        def fits(connection: Any) -> str:
            return "x" * 998

        @step.python(on="one", max_result=1000, do_xcom_push=False)
        def kept_to_itself(connection: Any) -> str:
            return "x" * 1000

        @step.python(on="one", max_result=1000)
        def made(connection: Any) -> str:
            connection.exec_driver_sql("INSERT INTO note VALUES ('x')")
            return "x" * 999

        fits() >> kept_to_itself() >> made()

    run = notes.run(large())
    assert {name: run.tasks[name] for name in ("fits", "kept_to_itself", "made")} == {
        "fits": "success",
        "kept_to_itself": "success",
        "made": "failed",
    }
    assert run.tries()["made"] == 1
    assert notes.rows("pg_one", "SELECT what FROM note") == []
    told = capfd.readouterr()
    line = "the step returns 1,001 bytes, and at most 1,000 are handed on, by way of Airflow's database; keep them in"
    assert line in told.out + told.err


def test_a_call_that_returns_too_much_fails_and_is_undone(notes: House, capfd: pytest.CaptureFixture[str]) -> None:
    @message_flow(schedule=None, default_args={**AGAIN, "max_result": 100})
    def calling() -> None:
        step.call("call", lambda: "x" * 100)

    run = notes.run(calling())
    assert (run.tasks["call"], run.tasks["end"], run.tries()["call"]) == ("failed", "failed", 1)
    told = capfd.readouterr()
    assert "the step returns 102 bytes, and at most 100 are handed on" in told.out + told.err


@pytest.mark.parametrize("said", [0, True, "1 MiB"])
def test_a_limit_that_is_no_number_of_bytes_is_refused_when_the_file_is_parsed(said: object) -> None:
    @message_flow(schedule=None)
    def limited() -> None:
        SqlStep(task_id="limited", on="home", sql="DELETE FROM x", max_result=said)

    with pytest.raises(FlowRefused, match=r"max_result of step 'limited' is .*; give a number of bytes, 1 or more"):
        limited()


class Kept(dict[str, str]):
    """What Airflow keeps of a task."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


def test_a_later_attempt_that_returns_nothing_does_not_hand_on_what_an_earlier_one_returned() -> None:
    def context(attempt: int) -> Any:
        return {"task_state_store": kept, "ti": SimpleNamespace(try_number=attempt)}

    kept = Kept()
    keep_result(context(1), 7, "first")
    assert find_result(context(2), 7) == "first"
    assert find_result(context(2), 8) is None
    keep_result(context(2), 7, None)
    assert find_result(context(3), 7) is None


PROGRAM = """
import json, sys
from pathlib import Path
import txsaga
from txsaga.spark.job import hand_over
txid, name, result = sys.argv[1:]
with txsaga.connect(roles=False, answering=False) as broker, broker.flow(int(txid)) as flow, flow.step(name):
    hand_over({"rows": 3}, Path(result), waits=True)
"""


class DyingSpark(SparkStep):
    """A Spark step without Spark, whose task dies when its process is done, at its first try."""

    tries: ClassVar[list[int]] = []

    def _command(self, context: Any, flow: JoinedFlow, name: str, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", PROGRAM, str(flow.txid), name, words[1]]

    def _run(self, command: Any, env: Any, *given: Any) -> Exception | None:
        said = super()._run(command, env, *given)
        self.tries.append(1)
        if len(self.tries) == 1:
            raise RuntimeError("killed")
        return said


def test_the_result_of_a_spark_step_is_kept_before_the_step_is_done(house: House) -> None:
    DyingSpark.tries.clear()

    @message_flow(schedule=None)
    def sparkling() -> None:
        DyingSpark(task_id="spark", program="anything", **AGAIN)

    run = house.run(sparkling())
    assert run.state == "success", run.tasks
    assert len(DyingSpark.tries) == 1
    assert run.xcom("spark") == {"rows": 3}
