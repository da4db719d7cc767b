"""
W5: flows in Airflow, with real processes.

`10 tasks`: ten plain tasks against the same as a message flow, in seconds from the start of the first to the end of
the last; `overhead` is ours over theirs, `ms_per_step` what a step of ours takes longer. `200 waiting`: what two
hundred sensors cost while they wait and the engine is stopped: commits per second of the store's database, `core` of
the triggerer. `burst`: a thousand messages at once (see `w5_burst`). `parse`: the flow's file against the plain one's,
in milliseconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import create_engine, text

from tests.airflow_host.hosts import HostedAirflow, hosted, until
from tests.bench.home import Home
from tests.bench.report import Row
from tests.bench.w5_burst import burst
from txsaga.airflow_host.processes import AirflowPart, processes
from txsaga.core.decision import LocalState
from txsaga.embedded.server import EmbeddedServer

DAGS = Path(__file__).parent / "w5_dags"
SENSORS = 200
STARTED = re.compile(r"(\d+) watchers currently running")
"""What the triggerer says once a minute; starting two hundred, which then only wait, takes it half a minute."""
RESOURCES = ("w5_a", "w5_b")
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'txsaga'"
PARSE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
times = []
for _ in range(12):
    began = time.perf_counter()
    bag = DagBag(sys.argv[1])
    times.append(time.perf_counter() - began)
    assert not bag.import_errors, bag.import_errors
print(json.dumps(times[2:]))
"""


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    """Measure on an Airflow of its own."""
    with hosted(prepare=_databases, dags=DAGS) as host:
        tasks, waiting, bursts = Row("10 tasks", baselines={"plain": []}), Row("200 waiting", unit="tx/s"), Row("burst")
        burst(host, 10)  # for warmth
        for _ in range(rounds):
            bursts.add(burst(host))
        for _ in range(rounds + 1):  # the first one is for warmth
            plain, flow = _run(host, "w5_plain"), _run(host, "w5_flow")
            tasks.baselines["plain"].append(plain["span"])
            slower = 1000 * (flow["step"] - plain["step"])
            tasks.add({"txsaga": flow["span"], "overhead": flow["span"] / plain["span"], "ms_per_step": slower})
        for kept in (tasks.ours, tasks.baselines["plain"], *tasks.extra.values()):
            del kept[0]
        waiting.add(_waiting(host, max(10.0, seconds)))
    parse = Row("parse", baselines={"plain": []}, unit="ms")
    for _ in range(rounds):
        plain_ms, flow_ms = _parsed("plain"), _parsed("flow")
        parse.baselines["plain"].append(plain_ms)
        parse.add({"txsaga": flow_ms, "overhead": flow_ms / plain_ms})
    return [tasks, waiting, bursts, parse], []


def _databases(server: EmbeddedServer) -> dict[str, str]:
    """Make the databases of the flow, and name them to the host."""
    urls = {}
    for name in RESOURCES:
        urls[f"TXSAGA_RESOURCE_{name.upper()}"] = url = server.ensure().database(name).url(name)
        engine = create_engine(url)
        with engine.begin() as connection:
            for table in ("w5 (n int)", "w5_burst (id text)"):
                connection.execute(text(f"CREATE TABLE {table}"))
        engine.dispose()
    return urls


def _run(host: HostedAirflow, dag: str) -> dict[str, float]:
    """Run a DAG; return the time from its first step to its last, and the mean time of a step."""
    with host.broker() as broker:
        broker.create_topic("w5", "transaction")
    run = host.trigger(dag)
    assert host.end_of(dag, run) == "success"
    path = f"dags/{dag}/dagRuns/{quote(run, safe='')}/taskInstances"
    found = host.api.ask("GET", path)["task_instances"]
    steps = [each for each in found if each["task_id"].startswith(("step_", "publish"))]
    assert len(steps) == 10
    begun, ended = ([_moment(each[name]) for each in steps] for name in ("start_date", "end_date"))
    lengths = [end - begin for begin, end in zip(begun, ended, strict=True)]
    return {"span": max(ended) - min(begun), "step": statistics.median(lengths)}


def _waiting(host: HostedAirflow, seconds: float) -> dict[str, float]:
    """Return what two hundred sensors cost while they wait."""
    with host.broker() as broker:
        producer = broker.producer("w5", checker=lambda question: LocalState.UNKNOWN)
        tx = producer.transaction(key="waited-for")
        with tx:
            host.trigger("w5_waiting", tx=str(tx.txid))
            until(lambda: _pool(host)["deferred_slots"] == SENSORS, 300)
            assert _pool(host)["running_slots"] == 0
            until(lambda: _started(host) >= SENSORS, 200)
            with _silent(host.pid(AirflowPart.ENGINE)):
                commits, core = _cost(host, seconds)
    return {"txsaga": commits, "core": core}


def _started(host: HostedAirflow) -> int:
    """Return how many triggers the triggerer has said that it runs."""
    log = host.home.log_of(AirflowPart.TRIGGERER.value).read_text("utf-8")
    return max(map(int, STARTED.findall(log)), default=0)


@contextmanager
def _silent(pid: int) -> Iterator[None]:
    """Stop a process for a while: what it does is not what is measured."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _cost(host: HostedAirflow, seconds: float) -> tuple[float, float]:
    """Return commits of the store's database in a second, and the part of a core that the triggerer takes."""
    time.sleep(2)
    engine = create_engine(EmbeddedServer.from_env(host.env).url("postgres"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        before, cpu = connection.execute(text(COMMITS)).scalar_one(), _cpu(host)
        time.sleep(seconds)
        after, then = connection.execute(text(COMMITS)).scalar_one(), _cpu(host)
    engine.dispose()
    return (after - before) / seconds, (then - cpu) / seconds


def _cpu(host: HostedAirflow) -> float:
    """Return the seconds of processor time that the triggerer took so far."""
    session = host.pid(AirflowPart.TRIGGERER)
    ticks = 0
    for process in processes(host.home):
        if process.session == session:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _parsed(name: str) -> float:
    """Return how many milliseconds it takes to parse a file, in a process that has Airflow loaded."""
    command: list[str] = [sys.executable, "-c", PARSE, str(DAGS / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return 1000 * statistics.median(times)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _pool(host: HostedAirflow) -> Any:  # JSON
    return host.api.ask("GET", "pools/default_pool")
