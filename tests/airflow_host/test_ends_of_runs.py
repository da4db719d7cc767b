"""
Runs that end, or stand still, without a word of their flow's last task: the engine asks Airflow, and settles.

And runs that are cleared behind their commit: they are refused, or amend what they committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.airflow_host.checkers import ANSWERS
from tests.airflow_host.hosts import HostedAirflow, hosted, until
from tests.cli.program import run as run_command
from txsaga.consume.dispatcher import Dispatcher
from txsaga.inspect.trace import Trace

DAGS = Path(__file__).parent / "ending_dags"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.rule("R5")]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder in which runs find that they may go on."""
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def host(answers: Path) -> Iterator[HostedAirflow]:
    """Give the Airflow of this module."""
    with hosted({ANSWERS: str(answers)}, dags=DAGS) as host:
        with host.broker() as broker:
            for topic in ("ended", "cleared"):
                broker.create_topic(topic, "transaction", queues=1)
        yield host


def waiting(host: HostedAirflow, dag: str, run: str) -> int:
    """Wait until the flow of a run is begun and its last step waits; return the transaction."""
    until(lambda: task_state(host, dag, run, "wait") == "running", 180)
    said = run_command("producer", "alter", dag, "--check-interval", "1s", env=host.env)
    assert said.code == 0, said.err
    with host.broker() as broker:
        views = broker.kernel.store.overview.transactions(undecided=True, limit=50)
        (txid,) = [each.txid for each in views if each.group == dag]
    return txid


def run_of(dag: str, run: str) -> str:
    """Return the address of a run."""
    return f"dags/{dag}/dagRuns/{quote(run, safe='')}"


def task_state(host: HostedAirflow, dag: str, run: str, task: str) -> object:
    """Return the state of a task."""
    found = host.api.ask("GET", f"{run_of(dag, run)}/taskInstances/{task}")
    return found and found["state"]


def traced(host: HostedAirflow, txid: int) -> Trace:
    """Return what is known of a transaction."""
    with host.broker() as broker:
        trace = broker.kernel.store.overview.trace(txid)
    assert trace is not None
    return trace


def told(host: HostedAirflow, topic: str = "ended") -> list[bytes]:
    """Return the messages that everybody sees."""
    with host.broker() as broker:
        while Dispatcher(broker.kernel).run_once():
            pass
        stream, found = broker.stream(f"looks-{topic}", [topic], member="anna"), list[bytes]()
        while (batch := stream.poll()) is not None:
            found += [bytes(each) for each in batch.bodies]
        stream.close()
    return found


def rolled_back_by_check_back(host: HostedAirflow, txid: int) -> None:
    """Wait until a transaction is rolled back, by nobody of its run."""
    until(lambda: traced(host, txid).op is not None, 180)
    trace = traced(host, txid)
    assert trace.op is not None
    assert (trace.op.decision.name, trace.op.from_check) == ("ROLLBACK", True)


def test_a_run_that_takes_too_long_or_is_deleted_is_rolled_back_by_check_back(host: HostedAirflow) -> None:
    runs = {dag: host.trigger(dag) for dag in ("deleted", "timed_out")}
    found = {dag: waiting(host, dag, run) for dag, run in runs.items()}
    for dag, run in runs.items():
        assert host.end_of(dag, run) == "failed"
        assert task_state(host, dag, run, "end") == "skipped"
    assert traced(host, found["deleted"]).op is None
    host.api.ask("DELETE", run_of("deleted", runs["deleted"]))
    assert host.api.run("deleted", runs["deleted"]) is None
    for txid in found.values():
        rolled_back_by_check_back(host, txid)
    assert told(host) == []


def test_a_paused_dag_keeps_what_its_run_holds_until_it_goes_on(host: HostedAirflow, answers: Path) -> None:
    run = host.trigger("paused")
    txid = waiting(host, "paused", run)
    host.api.ask("PATCH", "dags/paused", {"is_paused": True})
    (answers / run).touch()
    until(lambda: task_state(host, "paused", run, "wait") == "success")
    asked = set[object]()

    def put_off_twice() -> bool:
        listed = traced(host, txid).listed
        asked.add(listed and listed.due)
        return len(asked - {None}) > 1

    until(put_off_twice)
    assert traced(host, txid).op is None
    assert host.states("paused", run).get("success") == 3  # begin, the message, and what was at work
    host.api.ask("PATCH", "dags/paused", {"is_paused": False})
    assert host.end_of("paused", run) == "success"
    assert told(host) == [b"paused"]


@pytest.mark.req("CARD-07")
@pytest.mark.rule("R4")
def test_a_committed_run_that_is_cleared_is_refused_or_amends_what_it_committed(host: HostedAirflow) -> None:
    runs = {dag: host.trigger(dag) for dag in ("kept", "amended")}
    assert {dag: host.end_of(dag, run) for dag, run in runs.items()} == {"kept": "success", "amended": "success"}
    begun = {dag: host.xcom(dag, run, "begin") for dag, run in runs.items()}
    for dag, run in runs.items():
        host.clear(dag, run)
    assert {dag: host.end_of(dag, run) for dag, run in runs.items()} == {"kept": "failed", "amended": "success"}
    assert task_state(host, "kept", runs["kept"], "begin") == "failed"
    assert "trigger a new run instead, or set allow_amend=True" in host.said("kept", runs["kept"], "begin", 2)
    again = host.xcom("amended", runs["amended"], "begin")
    assert (again["key"], again["epoch"], again["amends"]) == (begun["amended"]["key"], 2, begun["amended"]["id"])
    kept, first, second = (traced(host, each["txid"]) for each in (begun["kept"], begun["amended"], again))
    assert [each.op and each.op.decision.name for each in (kept, first, second)] == ["COMMIT"] * 3
    assert (kept.amended_as, second.amends) == (None, begun["amended"]["txid"])
    assert first.amended_as is not None and first.amended_as.txid == again["txid"]
    amending = f"amended amends {begun['amended']['id']}".encode()
    assert sorted(told(host, "cleared")) == sorted([b"kept amends None", b"amended amends None", amending])
