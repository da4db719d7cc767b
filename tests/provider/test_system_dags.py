"""The system DAGs: the engine as a task, people's decisions, and the plugin that counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.airflow_host.instance import run_name
from txsaga.checkback.runs import RunState
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import StoreUnavailable
from txsaga.rocketmq import TransactionMQProducer
from txsaga.wiring.connecting import open_store

ROOT = Path(__file__).parents[2]
SYSTEM = ("txsaga_engine", "txsaga_collect", "txsaga_doubt")
PARSE = """
import json, sys, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
loaded = {name.partition(".")[0] for name in sys.modules}
heavy = {"pyspark", "great_expectations", "pyiceberg", "pyarrow", "psycopg"} & loaded
print(json.dumps([bag.import_errors, sorted(bag.dags), sorted(heavy)]))
"""


@pytest.fixture
def store(house: House) -> str:
    """Give the store of the house, with its schema."""
    open_store(house.home_url).close()
    return house.home_url


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_dag_is_parsed_without_drivers(airflow_home: Path, name: str) -> None:
    command: list[str] = [sys.executable, "-c", PARSE, str(ROOT / "dags" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    errors, dags, heavy = json.loads(done.stdout.splitlines()[-1])
    assert (errors, dags) == ({}, [name])
    assert heavy == []


def test_the_engine_as_a_task_delivers_and_asks_back(house: House, store: str) -> None:
    from airflow.sdk import DAG

    from txsaga.provider import EngineRoles

    topic = house.topic(fresh_name("engine"), "normal")
    with txsaga.connect(store, roles=False, answering=False, env={}) as broker:
        broker.producer("plain").send(topic, b"1")
    with DAG("an_engine", schedule=None) as dag:
        EngineRoles(task_id="roles", seconds=0)
    run = house.run(dag)
    assert run.state == "success"
    assert run.xcom("roles")["dispatcher"] >= 1
    with txsaga.connect(store, roles=False, answering=False, env={}) as broker:
        assert sum(reading.lag for reading in broker.kernel.store.overview.readings()) == 0
        assert [bytes(each.body) for each in broker.stream("reader", [topic]).messages(wait=0)] == [b"1"]


@pytest.mark.rule("R5")
def test_a_task_asks_its_own_airflow_about_runs() -> None:
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    from txsaga.provider.operators.maintenance import TaskRuns

    def state(dag_id: str, run_id: str) -> str:
        if run_id == "deleted":
            told = f"Dag run with dag_id '{dag_id}' and run_id 'deleted' was not found"
            raise refused({"reason": "not_found", "message": told})
        if run_id == "elsewhere":
            raise refused("Not Found")
        if run_id == "strange":
            raise RuntimeError("NOT_FOUND: a file of the worker")
        if run_id == "silent":
            raise TimeoutError("no answer")
        return run_id

    def refused(detail: object) -> AirflowRuntimeError:
        said = {"status_code": 404, "message": "Server returned error", "detail": {"detail": detail}}
        return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=said))

    runs = TaskRuns(state, "north")
    assert runs.state(run_name("bank", "running")) is RunState.ALIVE
    assert runs.state(run_name("bank", "failed")) is RunState.OVER
    assert runs.state(run_name("bank", "deleted")) is RunState.OVER
    assert runs.state(run_name("bank", "failed", "north")) is RunState.OVER
    assert runs.state(run_name("bank", "failed", "south")) is RunState.UNREACHABLE
    assert runs.state("cron/1") is RunState.UNREACHABLE
    with pytest.raises(AirflowRuntimeError):  # a proxy's
        runs.state(run_name("bank", "elsewhere"))
    with pytest.raises(RuntimeError, match="a file of the worker"):
        runs.state(run_name("bank", "strange"))
    with pytest.raises(TimeoutError):  # check-back takes it for alive
        runs.state(run_name("bank", "silent"))


def parked(store: str, topic: str) -> int:
    """Leave a transaction that nobody can decide."""
    with txsaga.connect(store, roles=False, answering=False, env={}) as broker:
        producer = TransactionMQProducer(broker, "lost", checker=lambda question: LocalState.UNKNOWN)
        sent = producer.send_message_in_transaction(
            txsaga.Message(topic=topic, body=b"x"), executor=lambda *given: LocalState.UNKNOWN
        )
        txid = broker.identity.own(sent.transaction_id)
        with broker.kernel.store.ledgers.open() as ledger:
            ledger.park(txid, "out of checks")
    return txid


def test_a_person_settles_what_is_parked(house: House, store: str) -> None:
    from txsaga.provider import ListParked, SettleParked

    topic = house.topic(fresh_name("doubt"))
    txids = [parked(store, topic) for _ in range(3)]
    listed: list[dict[str, str]] = ListParked(task_id="list").execute({})
    assert [each["transaction"] for each in listed] == [str(txid) for txid in txids]
    for said, each in zip(("Commit", "Roll back", "Later"), listed, strict=True):
        answer(SettleParked(task_id="settle", **each), said)
    with txsaga.connect(store, roles=False, answering=False, env={}) as broker:
        assert broker.kernel.store.overview.decisions(txids) == {
            txids[0]: Decision.COMMIT,
            txids[1]: Decision.ROLLBACK,
        }
        history = broker.kernel.store.overview.history(txids[0])
        assert "ann by Airflow" in {each.who for each in history}


def answer(task: Any, choice: str) -> None:  # an operator
    """Answer for a person."""
    from airflow.sdk.timezone import utcnow

    event = {
        "chosen_options": [choice],
        "params_input": {"reason": "looked at it"},
        "responded_at": utcnow(),
        "responded_by_user": {"id": "1", "name": "ann"},
        "timedout": False,
    }
    task.execute_complete({}, event)


def test_the_plugin_counts_the_ends_of_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    from txsaga.provider import plugin as listener
    from txsaga.provider.operators.task import FlowRolledBack
    from txsaga.provider.plugin import TxSagaPlugin

    counted: list[str] = []
    monkeypatch.setattr("airflow.sdk.observability.stats.incr", lambda name, *given, **said: counted.append(name))
    end = type("Instance", (), {"task": type("FlowEnd", (), {})(), "dag_id": "bank"})()
    other = type("Instance", (), {"task": type("Other", (), {})(), "dag_id": "bank"})()
    for instance in (end, other):
        listener.on_task_instance_success(None, instance)
        for error in (FlowRolledBack("no"), StoreUnavailable("away"), None):
            listener.on_task_instance_failed(None, instance, error)
    assert counted == ["txsaga.flow.committed", "txsaga.flow.rolled_back"]
    assert TxSagaPlugin.name == "txsaga"


def test_a_failure_is_told_by_a_message(house: House, store: str) -> None:
    from airflow.sdk import DAG, task

    from txsaga.provider import MessageNotifier

    topic = house.topic(fresh_name("trouble"), "normal")
    with DAG("fails", schedule=None) as dag:

        @task(on_failure_callback=MessageNotifier(topic=topic, body={"dag": "{{ dag_run.dag_id }}"}))
        def broken() -> None:
            raise ValueError("no")

        broken()
    assert house.run(dag).tasks == {"broken": "failed"}
    assert house.seen(topic) == [b'{"dag": "fails"}']
