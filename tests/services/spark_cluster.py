"""A Spark cluster of one master and one worker on this machine, from the package that drivers use too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.services.free_port import free_port
from txsaga.spark.sessions import java_home

PATIENCE = 120.0
PACKAGE = "org.apache.spark.deploy"


class SparkCluster:
    """A cluster that is up."""

    def __init__(self, port: int, page: int) -> None:
        self.master, self._page = f"spark://127.0.0.1:{port}", page

    def workers(self) -> int:
        """Return how many workers are there."""
        return int(self._said().get("aliveworkers", 0))

    def applications(self) -> set[str]:
        """Return the ids of the applications that are there."""
        return {each["id"] for each in self._said().get("activeapps", ())}

    def _said(self) -> dict[str, Any]:
        with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as page:
            return dict(json.load(page))
        return {}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start a cluster, and stop it."""
    cluster, started = SparkCluster(port := free_port(), page := free_port()), list[subprocess.Popen[bytes]]()
    host = ("--host", "127.0.0.1")
    parts: Sequence[Sequence[str]] = (
        ("master.Master", *host, "--port", str(port), "--webui-port", str(page)),
        ("worker.Worker", *host, "--cores", "2", "--memory", "2g", "--webui-port", str(free_port()), cluster.master),
    )
    try:
        for part in parts:
            started.append(_start(part, folder))
        until = time.monotonic() + PATIENCE
        while not cluster.workers():
            assert time.monotonic() < until, (folder / "cluster.log").read_text("utf-8", "replace")
            time.sleep(0.2)
        yield cluster
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def _start(part: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    home = java_home()
    env = {
        **os.environ,
        **({} if home is None else {"JAVA_HOME": home}),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    name, *words = part
    command = [str(Path(found.origin).parent / "bin" / "spark-class"), f"{PACKAGE}.{name}", *words]
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
