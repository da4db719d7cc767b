"""The example of the lake: Spark stages, a gate votes, and tables, message and row are there, or none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk import DAG

import txsaga
from tests.provider.examples import example
from tests.provider.house import House
from txsaga.errors import ConfigError
from txsaga.gate import expect, stop
from txsaga.provider import FlowBegin, FlowEnd, GateStep, SparkStep
from txsaga.provider.flow_dag import enclose

ROOT = Path(__file__).parents[2]
NOTHING_HEAVY = """
import sys
sys.path[:0] = ["dags"]
import lake_publish
heavy = {"pyspark", "great_expectations", "pyiceberg", "pyarrow", "pandas", "psycopg"} & set(sys.modules)
sys.exit(str(sorted(heavy)) if heavy else 0)
"""


@pytest.fixture
def lake(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Give a warehouse, transfers and a database for reports."""
    monkeypatch.setenv("TXSAGA_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("TXSAGA_SPARK_MASTER", "local[1]")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    house.postgres("lake_reports")
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        for topic in ("lake_transfers", "lake_spoilt", "lake_books"):
            broker.create_topic(topic, type="transaction", queues=1)
    assert house.run(example("lake_open")).state == "success"
    assert len(house.seen("lake_transfers")) == 2
    yield house
    stop()


def kept(lake: House, table: str) -> int | None:
    with txsaga.connect(lake.home_url, roles=False, answering=False, env={}) as broker:
        try:
            with broker.cut(tables=[table]) as cut:
                return int(cut.scan(table).to_arrow().num_rows)
        except txsaga.errors.UnknownTable:
            return None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.req("CARD-03", "CARD-08")
def test_tables_message_and_row_are_published_together_or_not_at_all(lake: House) -> None:
    """All outcomes in one test: each takes a session of Spark."""
    publish = example("lake_publish")

    spoilt = lake.run(publish, {"fault": "spoilt"})
    assert (spoilt.state, spoilt.tasks["books"], spoilt.tasks["audit"]) == ("failed", "success", "failed")
    behind = lake.run(publish, {"fault": "after the gate"})
    assert (behind.state, behind.tasks["audit"], behind.tasks["report"]) == ("failed", "success", "failed")
    assert kept(lake, "bank.posting") is None and kept(lake, "bank.account") is None
    assert lake.rows("lake_reports", "SELECT * FROM report") == [] and lake.seen("lake_books") == []

    good = lake.run(publish, {"fault": "none"})
    assert good.state == "success", good.tasks
    assert good.xcom("books") == {"postings": 4, "accounts": 3}
    assert kept(lake, "bank.posting") == 4 and kept(lake, "bank.account") == 3
    assert lake.rows("lake_reports", "SELECT * FROM report") == [(good.id, 4)]
    assert json.loads(lake.seen("lake_books")[0])["run"] == good.id


def test_the_file_of_the_dag_loads_nothing_heavy() -> None:
    asked = [sys.executable, "-W", "ignore", "-c", NOTHING_HEAVY]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def spark_flow(program: str, name: str) -> DAG:
    with DAG(name, schedule=None) as dag:
        begin = FlowBegin(task_id="begin")
        SparkStep(task_id="work", program=program, retries=0)
        enclose(begin, FlowEnd(task_id="end"))
    return dag


def test_a_program_that_is_not_there_fails_its_task(house: House) -> None:
    run = house.run(spark_flow("nowhere.py", "no_program"))
    assert run.tasks["work"] == "failed" and run.tasks["end"] == "failed"


def test_a_gate_of_a_task_looks_at_rows_that_nobody_sees(house: House) -> None:
    from txsaga.provider.operators.sql import SqlStep

    house.postgres("lake_reports", "CREATE TABLE report (id int)")
    unique = [{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}]

    def flow(name: str, *ids: int) -> DAG:
        with DAG(name, schedule=None) as dag:
            begin = FlowBegin(task_id="begin", coordinated=True, resources={"reports": "lake_reports"})
            values = ", ".join(f"({id})" for id in ids)
            write = SqlStep(task_id="write", on="reports", sql=f"INSERT INTO report VALUES {values}")
            check = GateStep(
                task_id="check", on="reports", sql=f"SELECT * FROM (VALUES {values}) AS v (id)", gate=expect(unique)
            )
            write >> check
            enclose(begin, FlowEnd(task_id="end"))
        return dag

    good, bad = house.run(flow("gate_good", 1, 2)), house.run(flow("gate_bad", 3, 3))
    stop()
    assert good.xcom("check")["votes"] == {"expectations": {"yes": True, "rows": 2}}
    assert (good.state, bad.state, bad.tasks["check"]) == ("success", "failed", "failed")
    assert house.rows("lake_reports", "SELECT id FROM report ORDER BY id") == [(1,), (2,)]


def test_a_gate_that_looks_at_nothing_is_refused_when_it_is_parsed() -> None:
    with pytest.raises(ConfigError, match="checks one thing"):
        GateStep(task_id="check", gate=expect("suite"))
