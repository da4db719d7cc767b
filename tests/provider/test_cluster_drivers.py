"""On a real cluster: the driver outlives its task and is joined; stopped, it is superseded and publishes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.provider.house import House
from tests.provider.test_reattaching import Tasks, is_over, kill, opened, stopped, wait_for
from tests.services.spark_cluster import SparkCluster, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import os, time
from pathlib import Path

def run(job):
    folder = Path(job.argument("folder"))
    rows = job.spark.range(3).selectExpr("id")
    job.transaction.table("bank.number").create({"id": "long"})
    with (folder / "begun").open("a") as begun:
        begun.write(f"{os.getpid()}\\n")
    while not (folder / "go").exists():
        time.sleep(0.05)
    return {"rows": job.append("bank.number", rows), "application": job.spark.sparkContext.applicationId}
"""
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as up:
        yield up


@pytest.fixture
def tasks(house: House, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TMPDIR", str(house.folder))
    monkeypatch.setenv("TXSAGA_WAREHOUSE", str(house.folder / "warehouse"))
    monkeypatch.delenv("TXSAGA_SPARK_JARS", raising=False)
    program = house.folder / "numbers.py"
    program.write_text(PROGRAM, "utf-8")
    with opened(house) as made:
        made.step = {
            "program": str(program),
            "arguments": {"folder": str(house.folder)},
            "master": cluster.master,
            "conf": CONF,
        }
        made.light, made.warehouse = False, str(house.folder / "warehouse")
        yield made


def published(tasks: Tasks) -> int:
    """Commit the flow; return how many rows it published."""
    import txsaga

    with tasks.broker.flow(tasks.txid) as flow:
        flow.end()
    options: Any = {"roles": False, "answering": False, "env": {}}
    with txsaga.connect(tasks.house.home_url, warehouse=tasks.warehouse, **options) as broker:
        with broker.cut(tables=["bank.number"]) as cut:
            return cast(int, cut.scan("bank.number").to_arrow().num_rows)


@pytest.mark.rule("R4")
@pytest.mark.req("CARD-03")
@pytest.mark.parametrize("submit", [False, True], ids=["a process of its own", "spark-submit"])
def test_a_retry_joins_the_application_of_a_task_that_was_killed(
    tasks: Tasks, cluster: SparkCluster, submit: bool
) -> None:
    tasks.step["submit"] = submit
    first = tasks.begin()
    driver = tasks.driver()
    assert driver.id in cluster.applications()
    kill(first)
    tasks.begin()
    wait_for(lambda: f"joining application {driver.id}" in tasks.told(), "the retry to join", tasks.told)
    assert cluster.applications() == {driver.id}
    tasks.go()
    assert tasks.result() == {"rows": 3, "application": driver.id}
    wait_for(lambda: not cluster.applications(), "the application to leave", tasks.told)
    assert (tasks.begun(), published(tasks)) == ([driver.pid], 3)


@pytest.mark.rule("R4")
@pytest.mark.req("CARD-03")
def test_a_stopped_driver_is_superseded_and_publishes_nothing(tasks: Tasks, cluster: SparkCluster) -> None:
    zombie, second = stopped(tasks)
    assert cluster.applications() == {zombie.id, second.id}
    tasks.go()
    assert tasks.result() == {"rows": 3, "application": second.id}
    os.killpg(zombie.group, signal.SIGCONT)  # it may go on, and would be through
    wait_for(lambda: is_over(zombie), "the zombie to end", tasks.told)
    wait_for(lambda: not cluster.applications(), "both applications to leave", tasks.told)
    assert (tasks.begun(), published(tasks)) == ([zombie.pid, second.pid], 3)
