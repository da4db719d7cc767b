"""A driver outlives its task: the retry joins it, or takes its place, and whoever came too late publishes nothing."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import txsaga
from tests.provider.house import House
from tests.provider.spark_task import LightStep
from tests.provider.waiting_driver import STEP, TOPIC
from txsaga import Broker, LocalState
from txsaga.checkback.heartbeat import AT_WORK, place_of
from txsaga.errors import ConfigError, StoreUnavailable, Superseded
from txsaga.flows.step import StepState
from txsaga.provider import SparkStep, message_flow
from txsaga.provider.operators.spark import StepDriver
from txsaga.spark.application import SparkDriver, born, superseded

LONG = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(slots=True)
class Tasks:
    """The tasks of one step, one after the other, each in a process of its own."""

    house: House
    broker: Broker
    txid: int
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    step: dict[str, object] = field(default_factory=lambda: {"program": "anything", "reattach": True})
    light: bool = True
    elsewhere: bool = False
    warehouse: str | None = None

    @property
    def folder(self) -> Path:
        return self.house.folder

    def begin(self) -> subprocess.Popen[str]:
        """Start a task."""
        said = {"url": self.house.home_url, "txid": self.txid, "folder": str(self.folder), "step": self.step}
        said |= {"light": self.light, "warehouse": self.warehouse, "elsewhere": self.elsewhere}
        command = [sys.executable, "-W", "ignore", "-m", "tests.provider.spark_task", json.dumps(said)]
        env = {**os.environ, "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"}
        with (self.folder / f"task-{len(self.processes)}.log").open("w") as told:
            self.processes.append(subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT, text=True, env=env))
        return self.processes[-1]

    def told(self, number: int = -1) -> str:
        """Return what a task has told so far."""
        return (self.folder / f"task-{number % len(self.processes)}.log").read_text()

    def result(self) -> object:
        """Return what the last task returned, at its end."""
        assert self.processes[-1].wait(LONG) == 0, self.told()
        return json.loads(self.told().rpartition("RESULT ")[2])

    def go(self) -> None:
        """Let the driver go on."""
        (self.folder / "go").touch()

    def driver(self, number: int = 1) -> SparkDriver:
        """Return the driver of an attempt, once its program has begun."""
        wait_for(lambda: len(self.begun()) >= number, f"driver {number} to begin", self.told)
        with self.broker.flow(self.txid) as flow:
            found = flow.attempt(STEP)
        assert found is not None and found.application is not None and found.number == number
        driver = SparkDriver.of(found.application.about)
        assert driver is not None
        return driver

    def begun(self) -> Sequence[int]:
        """Return the drivers whose program began."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.folder / "begun").read_text().split()]
        return []

    def forget(self, number: int = 1) -> None:
        """Let the lease of a driver run out, as if half a minute had passed."""
        with self.broker.flow(self.txid) as flow:
            found = flow.attempt(STEP)
        assert found is not None and found.application is not None and found.number == number
        self.broker.kernel.store.leases.drop(AT_WORK, place_of(self.txid, found.application.member, STEP))

    def commit(self) -> list[bytes]:
        """Commit the flow; return what it published."""
        with self.broker.flow(self.txid) as flow:
            flow.end()
        return self.house.seen(TOPIC)


@contextmanager
def opened(house: House) -> Iterator[Tasks]:
    """Begin a flow; end whatever its tasks and drivers left."""
    house.topic(TOPIC)
    options: Any = {"roles": False, "answering": False, "env": {}}
    with txsaga.connect(house.home_url, **options) as broker:
        flow = broker.producer("sparks", checker=lambda question: LocalState.UNKNOWN).begin_flow(key="one")
        tasks = Tasks(house, broker, flow.txid)
        try:
            yield tasks
        finally:
            for process in tasks.processes:
                process.terminate()  # so that it ends a driver that has not begun yet
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                kill(process)
            for pid in tasks.begun():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def tasks(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TMPDIR", str(house.folder))  # where the lines of drivers stay whose end no task has seen
    with opened(house) as made:
        yield made


def wait_for(is_so: Callable[[], bool], what: str, told: Callable[[], str]) -> None:
    until = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < until, f"waited in vain for {what}; {told()}"
        time.sleep(0.02)


def is_over(driver: SparkDriver) -> bool:
    return born(driver.pid) != driver.born


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def stopped(tasks: Tasks) -> tuple[SparkDriver, SparkDriver]:
    """Stop a driver behind its killed task, and let the retry take its place; return both."""
    first = tasks.begin()
    zombie = tasks.driver()
    kill(first)
    os.killpg(zombie.group, signal.SIGSTOP)
    tasks.forget()
    tasks.begin()
    return zombie, tasks.driver(2)


@pytest.mark.rule("R4")
def test_a_task_is_killed_and_the_retry_joins_its_driver(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    tasks.begin()
    wait_for(lambda: f"driver {driver.pid} waits" in tasks.told(), "the retry to show the lines", tasks.told)
    assert f"joining application app-{driver.pid} of an attempt before" in tasks.told()
    tasks.go()
    assert tasks.result() == {"rows": 3}
    assert f"driver {driver.pid} goes on" in tasks.told()
    assert is_over(driver) and not Path(driver.lines).parent.exists()
    assert tasks.begun() == [driver.pid]
    assert tasks.commit() == [str(driver.pid).encode()]


def test_a_step_that_was_done_while_nobody_waited_hands_its_result_on(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    tasks.go()
    wait_for(lambda: is_over(driver), "the driver to end", tasks.told)
    tasks.begin()
    assert tasks.result() == {"rows": 3}
    assert tasks.begun() == [driver.pid] and not Path(driver.lines).exists()


@pytest.mark.rule("R14")
def test_a_store_that_is_away_when_the_driver_ends_is_asked_again(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = iter([False, True, True])
    lines = tasks.folder / "lines.log"

    def start() -> tuple[subprocess.Popen[str], Path]:
        lines.write_text("done\n")
        tasks.go()
        command = [sys.executable, "-m", "tests.provider.waiting_driver", str(tasks.txid), STEP, str(tasks.folder)]
        process = subprocess.Popen(
            [*command, str(lines)], env={**os.environ, "TXSAGA_URL": tasks.house.home_url}, text=True
        )
        process.wait(LONG)
        return process, lines

    with tasks.broker.flow(tasks.txid) as flow:
        attempt = flow.attempt

        def asked(step: str) -> object:
            if next(away, False):
                raise StoreUnavailable("gone for a moment")
            return attempt(step)

        monkeypatch.setattr(flow, "attempt", asked)
        driver = StepDriver(flow, STEP, logging.getLogger("task"), start)
        assert json.loads(driver.run() or "") == {"rows": 3}


@pytest.mark.rule("R4")
def test_a_driver_whose_place_was_taken_at_once_finds_that(tasks: Tasks) -> None:
    late, early = (SparkDriver.here(name, f"/nowhere/{name}") for name in ("late", "early"))
    with tasks.broker.flow(tasks.txid) as flow, tasks.broker.flow(tasks.txid) as other, pytest.raises(Superseded):
        with flow.step(STEP, application=late._asdict()):
            with other.step(STEP, application=early._asdict()):
                assert "taken the place of application late" in str(superseded(flow, STEP, late))
                assert superseded(other, STEP, early) is None


@pytest.mark.rule("R4")
def test_the_driver_is_killed_too_and_the_retry_takes_its_place(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    os.kill(driver.pid, signal.SIGKILL)
    wait_for(lambda: is_over(driver), "the driver to end", tasks.told)
    tasks.begin()
    second = tasks.driver(2)
    assert not Path(driver.lines).exists()
    tasks.go()
    assert tasks.result() == {"rows": 3}
    assert tasks.commit() == [str(second.pid).encode()]


@pytest.mark.rule("R4")
@pytest.mark.req("RMQ-01")
def test_a_driver_that_comes_to_life_again_publishes_nothing_and_ends(tasks: Tasks) -> None:
    zombie, second = stopped(tasks)
    os.killpg(zombie.group, signal.SIGCONT)
    wait_for(lambda: is_over(zombie), "the zombie to end", tasks.told)
    assert (
        f"attempt 2 of step 'work' has taken the place of application {zombie.id}: this driver ends"
        in Path(zombie.lines).read_text()
    )
    tasks.go()
    assert tasks.result() == {"rows": 3}
    assert tasks.commit() == [str(second.pid).encode()]


@pytest.mark.rule("R4")
def test_a_driver_that_comes_to_life_at_its_very_end_publishes_nothing(tasks: Tasks) -> None:
    zombie, second = stopped(tasks)
    tasks.go()
    assert tasks.result() == {"rows": 3}
    os.killpg(zombie.group, signal.SIGCONT)  # it finds its way free, and is done before it asks
    wait_for(lambda: is_over(zombie), "the zombie to end", tasks.told)
    assert tasks.commit() == [str(second.pid).encode()]


@pytest.mark.parametrize("joined", [False, True])
def test_a_task_that_a_person_ends_ends_its_driver(tasks: Tasks, joined: bool) -> None:
    task = tasks.begin()
    driver = tasks.driver()
    if joined:
        kill(task)
        task = tasks.begin()
        wait_for(lambda: f"driver {driver.pid} waits" in tasks.told(), "the retry to join", tasks.told)
    task.terminate()
    wait_for(lambda: is_over(driver), "the driver to end", tasks.told)
    assert task.wait(LONG) != 0
    assert tasks.begun() == [driver.pid]


def test_a_driver_elsewhere_is_ended_by_taking_its_place(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    tasks.elsewhere = True
    second = tasks.begin()
    wait_for(lambda: f"its lines are in {driver.lines} there" in tasks.told(), "the retry to join", tasks.told)
    second.terminate()
    wait_for(lambda: is_over(driver), "the driver to end", tasks.told)
    assert "has taken the place of application app-" in Path(driver.lines).read_text()
    assert second.wait(LONG) != 0
    assert tasks.begun() == [driver.pid]


def test_a_driver_whose_flow_is_rolled_back_ends_and_publishes_nothing(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    with tasks.broker.flow(tasks.txid) as flow:
        flow.roll_back("the run failed")
    wait_for(lambda: is_over(driver), "the driver to end", tasks.told)
    assert "this driver ends, and its writes are not published" in Path(driver.lines).read_text()
    assert tasks.house.seen(TOPIC) == []


def test_what_a_driver_fails_with_is_the_failure_of_the_task_that_joined_it(tasks: Tasks) -> None:
    first = tasks.begin()
    driver = tasks.driver()
    kill(first)
    task = tasks.begin()
    wait_for(lambda: f"driver {driver.pid} waits" in tasks.told(), "the retry to join", tasks.told)
    (tasks.folder / "fail").touch()
    assert task.wait(LONG) != 0
    assert (
        f"application app-{driver.pid}, joined by this task, failed: RuntimeError: it was told to fail" in tasks.told()
    )
    with tasks.broker.flow(tasks.txid) as flow:
        found = flow.attempt(STEP)
    assert found is not None and found.state is StepState.FAILED


def test_a_detached_step_hands_on_its_result_in_a_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    house.topic(TOPIC)
    (house.folder / "go").touch()
    LightStep.folder = str(house.folder)

    @message_flow(schedule=None)
    def detached_run() -> None:
        LightStep(task_id=STEP, program="anything", reattach=True)

    run = house.run(detached_run())
    assert (run.state, run.xcom(STEP)) == ("success", {"rows": 3})
    assert len(house.seen(TOPIC)) == 1


@pytest.mark.parametrize(
    ("said", "reattaches"),
    [
        ({}, False),
        ({"master": "local[2]"}, False),
        ({"master": "spark://host:7077"}, True),
        ({"conf": {"spark.master": "yarn"}}, True),
        ({"env": {"TXSAGA_SPARK_MASTER": "spark://host:7077"}}, True),
        ({"master": "spark://host:7077", "reattach": False}, False),
        ({"reattach": True}, True),
    ],
)
def test_a_driver_outlives_its_task_on_a_cluster(
    airflow_home: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], reattaches: bool
) -> None:
    monkeypatch.delenv("TXSAGA_SPARK_MASTER", raising=False)
    assert SparkStep(task_id="x", program="x", **said)._reattaches() is reattaches


def test_a_word_for_reattaching_that_is_no_word_is_refused(airflow_home: Path) -> None:
    with pytest.raises(ConfigError, match="reattach of step 'x' is 'yes'; use True or False, or leave it out"):
        SparkStep(task_id="x", program="x", reattach="yes")  # type: ignore[arg-type]
