"""`txsaga airflow` with real processes: it starts, runs DAGs, outlives kill -9 of each part, and leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import txsaga
from tests.airflow_host.checkers import ANSWERS
from tests.airflow_host.hosts import HostedAirflow, hosted, until
from tests.services.collector import Collector, collector
from txsaga.airflow_host import processes
from txsaga.airflow_host.followers import TOPIC
from txsaga.airflow_host.processes import AirflowPart, PartRecord
from txsaga.core.decision import LocalState
from txsaga.embedded.server import EmbeddedServer
from txsaga.rocketmq import TransactionMQProducer

WAITING = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder in which checkers find what they answer."""
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def spans() -> Iterator[Collector]:
    """Give the collector of this module's spans."""
    with collector() as spans:
        yield spans


@pytest.fixture(scope="module")
def host(answers: Path, spans: Collector) -> Iterator[HostedAirflow]:
    """Give the Airflow of this module."""
    with hosted({ANSWERS: str(answers), **spans.env}) as host:
        yield host


def half(host: HostedAirflow) -> int:
    """Leave a half message in doubt, whose producer is gone."""
    with host.broker() as broker:
        broker.create_topic("halves", "transaction", queues=1)
        producer = TransactionMQProducer(broker, "gone", checker=lambda question: LocalState.UNKNOWN)
        message = txsaga.Message(topic="halves", body=b"x")
        sent = producer.send_message_in_transaction(message, executor=lambda *given: LocalState.UNKNOWN)
        return broker.identity.own(sent.transaction_id)


def test_a_run_ends_well_and_every_part_is_healthy(host: HostedAirflow) -> None:
    assert host.end_of("two_tasks", host.trigger("two_tasks")) == "success"
    said = host.command("status", "--json")
    assert said.code == 0
    assert {part["part"]: part["state"] for part in said.document["parts"]} == {
        part.value: "healthy" for part in AirflowPart
    }


def test_every_task_of_a_flow_is_a_span_in_the_trace_of_its_run(host: HostedAirflow, spans: Collector) -> None:
    run = host.trigger("followed")
    assert host.end_of("followed", run) == "success"
    txid = host.xcom("followed", run, "begin")["txid"]
    wanted = {"txsaga.begin", "txsaga.task", "txsaga.decide"}
    until(lambda: {span.name for span in spans.of(txid)} == wanted)
    assert len({span.trace for span in spans.of(txid)}) == 1


def test_a_second_start_finds_the_first(host: HostedAirflow) -> None:
    said = host.command("up", "--json")
    assert said.code == 0
    assert said.document["url"] == f"http://127.0.0.1:{host.port}"
    assert "runs already" in host.command("up", "--port", str(host.port + 1)).complaint


@pytest.mark.req("CARD-05")
def test_sensors_hold_no_worker_and_outlive_their_triggerer(host: HostedAirflow, answers: Path) -> None:
    txid = half(host)
    run = host.trigger("waiting", tx=str(txid))
    until(lambda: host.states("waiting", run) == {"deferred": WAITING + 1})
    assert host.api.ask("GET", "pools/default_pool")["running_slots"] == 0
    host.kill(AirflowPart.TRIGGERER)
    (answers / str(txid)).write_text("COMMIT")
    assert host.end_of("waiting", run) == "success"
    assert host.states("waiting", run) == {"success": WAITING + 1}


def test_a_burst_wakes_runs_until_nothing_is_left(host: HostedAirflow) -> None:
    with host.broker() as broker:
        broker.create_topic("burst", queues=2)
        broker.producer("burst").send_many("burst", [str(number).encode() for number in range(350)])
        broker.consumer("burst-app", ["burst"]).close()

        def left() -> int:
            readings = [each for each in broker.kernel.store.overview.readings() if each.topic == "burst"]
            return sum(each.lag + each.held + each.retrying for each in readings) if readings else 350

        # What was sent is no lag before its tick: runs of a hundred each must have been there.
        until(lambda: len(host.api.ask("GET", "dags/woken/dagRuns")["dag_runs"]) >= 4 and left() == 0, 150)


@pytest.mark.rule("R18")
@pytest.mark.parametrize("die", [False, True])
def test_a_dag_follows_a_commit_once_also_when_its_end_was_killed(host: HostedAirflow, die: bool) -> None:
    run = host.trigger("followed", die=die)
    assert host.end_of("followed", run) == ("failed" if die else "success")
    txid = host.xcom("followed", run, "begin")["txid"]
    until(lambda: txid in told_of(host) and not left_to_tell(host))
    assert events_of(host).count(txid) == told_of(host).count(txid) == 1


def left_to_tell(host: HostedAirflow) -> bool:
    """Tell whether the engine has still to work off what commits are followed by."""
    with host.broker() as broker:
        found = [each for each in broker.kernel.store.overview.readings() if each.topic == TOPIC]
    return not found or any(each.lag + each.held + each.retrying for each in found)


def events_of(host: HostedAirflow) -> list[int]:
    """Return the transactions of which there are events, each as often as it has one."""
    found = host.api.ask("GET", "assets/events?limit=100&order_by=-timestamp")["asset_events"]
    return [each["extra"]["txid"] for each in found if "txid" in each["extra"]]  # what wakes a DAG has none


def told_of(host: HostedAirflow) -> list[int]:
    """Return the transactions that the runs of the DAG that follows have heard of."""
    runs = host.api.ask("GET", "dags/following/dagRuns?state=success")["dag_runs"]
    return [txid for each in runs for txid in host.xcom("following", each["dag_run_id"], "told")]


def test_whatever_is_killed_is_started_again_and_runs_go_on(host: HostedAirflow) -> None:
    runs = [host.trigger("two_tasks")]
    host.kill(AirflowPart.SCHEDULER, AirflowPart.TRIGGERER)
    runs.append(host.trigger("two_tasks"))
    host.kill(AirflowPart.DAG_PROCESSOR, AirflowPart.ENGINE)
    host.kill(AirflowPart.API_SERVER)
    runs.append(host.trigger("two_tasks"))
    assert [host.end_of("two_tasks", run) for run in runs] == ["success"] * 3
    said = host.command("status", "--json")
    assert all(part["restarts"] >= 1 for part in said.document["parts"])


def test_the_database_is_started_again(host: HostedAirflow) -> None:
    server = EmbeddedServer.from_env(host.env)
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.status().running and server.status().pid != pid)
    assert host.end_of("two_tasks", host.trigger("two_tasks")) == "success"


def test_a_start_behind_a_killed_supervisor_ends_what_is_left_and_is_quick(host: HostedAirflow) -> None:
    record = PartRecord.read(host.home)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: not processes.is_alive(record.pid))
    assert host.command("status").code == 6
    began = time.monotonic()
    said = host.command("up", "--json", "--patience", "60")
    assert said.code == 0, said.err
    assert host.end_of("two_tasks", host.trigger("two_tasks")) == "success"
    assert time.monotonic() - began < 90


def test_down_leaves_no_process_and_the_database(host: HostedAirflow) -> None:
    assert host.command("down").code == 0
    assert not list(processes.processes(host.home))
    assert EmbeddedServer.from_env(host.env).status().running
    assert host.command("down").out.strip() == "nothing was running"
