"""
A task of a Spark step in a process of its own, as a worker runs it.

    python -m tests.provider.spark_task SAID

SAID is JSON: the store's url, the flow's txid, a folder, and what the step is made with. With `light` its driver is one
without Spark, with `elsewhere` it takes itself for another machine. Its log and its result are lines of its output.
"""

import json
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import txsaga
from tests.provider.waiting_driver import STEP
from txsaga.provider import SparkStep
from txsaga.provider.operators.task import JoinedFlow
from txsaga.spark import application


class LightStep(SparkStep):
    """A Spark step without Spark."""

    folder = ""

    def _command(self, context: Any, flow: JoinedFlow, name: str, words: Sequence[str]) -> list[str]:
        driver = [sys.executable, "-W", "ignore", "-m", "tests.provider.waiting_driver"]
        return [*driver, str(flow.txid), name, type(self).folder, words[1]]


def main(said: Mapping[str, Any]) -> None:
    """Run the task."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
    LightStep.folder = said["folder"]
    task = (LightStep if said["light"] else SparkStep)(task_id=STEP, **said["step"])
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())  # as Airflow's task runner does
    if said["elsewhere"]:
        application.machine = lambda: "another machine"
    context: Any = {
        "ti": SimpleNamespace(task_id=STEP, map_index=-1, try_number=1),
        "dag": SimpleNamespace(fileloc=str(Path(said["folder"]) / "dag.py")),
    }
    options: Any = {"roles": False, "answering": False, "env": {}}
    with txsaga.connect(said["url"], warehouse=said.get("warehouse"), **options) as broker:
        reference: Any = {"txid": said["txid"]}
        flow = JoinedFlow(reference=reference, broker=broker, flow=broker.flow(said["txid"]))
        print("RESULT", json.dumps(task.work(context, flow)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
