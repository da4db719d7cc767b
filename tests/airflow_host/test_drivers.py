"""In a running Airflow: a task or its worker is killed, and the retry joins the driver; a person ends both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.airflow_host.checkers import ANSWERS
from tests.airflow_host.hosts import HostedAirflow, hosted, until
from tests.airflow_host.test_ends_of_runs import run_of, task_state
from tests.provider.waiting_driver import STEP, TOPIC
from tests.services.databases import fresh_name
from txsaga.consume.dispatcher import Dispatcher
from txsaga.spark.application import born

DAG = "driving"
DAGS = Path(__file__).parent / "driver_dags"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.rule("R4")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder in which drivers say that they begin, and find that they may go on."""
    return tmp_path


@pytest.fixture
def host(folder: Path) -> Iterator[HostedAirflow]:
    """Give an Airflow, and end the drivers that a test has left."""
    with hosted({ANSWERS: str(folder)}, dags=DAGS) as host:
        with host.broker() as broker:
            broker.create_topic(TOPIC, "transaction", queues=1)
        try:
            yield host
        finally:
            for pid in begun(folder):
                if born(pid) is not None:
                    os.killpg(pid, signal.SIGKILL)


def begun(folder: Path) -> Sequence[int]:
    """Return the drivers that have begun."""
    place = folder / "begun"
    return [int(line) for line in place.read_text("utf-8").split()] if place.exists() else []


def parent_of(pid: int) -> int:
    """Return the process that waits for another one."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


def tries(host: HostedAirflow, run: str) -> int:
    """Return how often the task was tried."""
    return int(host.api.ask("GET", f"{run_of(DAG, run)}/taskInstances/{STEP}")["try_number"])


def seen(host: HostedAirflow) -> list[bytes]:
    """Return what was published."""
    with host.broker() as broker:
        while Dispatcher(broker.kernel).run_once():
            pass
        return [each.body for each in broker.stream(fresh_name("reader"), [TOPIC]).messages(wait=1)]


def test_a_retry_of_a_killed_task_joins_its_driver_and_a_person_ends_both(host: HostedAirflow, folder: Path) -> None:
    run = host.trigger(DAG)
    (driver,) = until(lambda: begun(folder), 180)
    task = parent_of(driver)
    os.kill(task, signal.SIGKILL)
    until(lambda: "joining application" in host.said(DAG, run, STEP, 2), 180)
    assert born(driver) is not None and begun(folder) == [driver]
    (folder / "go").touch()
    assert host.end_of(DAG, run) == "success"
    assert (tries(host, run), host.xcom(DAG, run, STEP), begun(folder)) == (2, {"rows": 3}, [driver])
    assert seen(host) == [str(driver).encode()]

    (folder / "go").unlink()
    run = host.trigger(DAG)
    _, driver = until(lambda: begun(folder) if len(begun(folder)) == 2 else None, 180)
    until(lambda: task_state(host, DAG, run, STEP) == "running")
    host.api.ask("PATCH", f"{run_of(DAG, run)}/taskInstances/{STEP}", {"new_state": "failed"})
    until(lambda: born(driver) is None, 120)
    assert host.end_of(DAG, run) == "failed"
    assert len(begun(folder)) == 2 and len(seen(host)) == 1
