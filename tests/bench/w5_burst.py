"""
The case `burst` of W5: a thousand messages at once to one flow that takes a hundred in each run.

It says how long it takes until all of them are written down, each once (`txsaga`), how long the last one waited to be
taken (`wait_s`), for how much of that a slot of the executor was free (`stall_s`), and by how many runs (`runs`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import create_engine, text

from tests.airflow_host.hosts import HostedAirflow, until
from txsaga.embedded.server import EmbeddedServer

DAG = TOPIC = "w5_burst"
GROUP = "w5-burst"
BURST = 1000
SLOTS = 4
"""What `txsaga airflow` gives its executor."""
PAGE = 100
COUNT = "SELECT count(*), count(DISTINCT id) FROM w5_burst"


def burst(host: HostedAirflow, messages: int = BURST) -> dict[str, float]:
    """Send messages at once, wait until all are written down, and look at what the runs did meanwhile."""
    engine = create_engine(EmbeddedServer.from_env(host.env).url("w5_a"))
    with host.broker() as broker:
        if TOPIC not in [each.name for each in broker.kernel.store.registry.topics()]:
            broker.create_topic(TOPIC, queues=4)
            broker.consumer(GROUP, [TOPIC]).close()
        before = _written(engine)[0]
        began = time.time()
        broker.producer("w5-burst-sender").send_many(TOPIC, [str(number).encode() for number in range(messages)])
        until(lambda: _written(engine)[0] - before >= messages, 300)
        done = time.time() - began
    until(lambda: not any(each["state"] in ("queued", "running") for each in _pages(host, f"dags/{DAG}/dagRuns")))
    written, distinct = _written(engine)
    engine.dispose()
    assert written == distinct == before + messages, f"{written - before} of {messages} messages were written down"
    found = [each for each in _tasks(host) if each["ended"] >= began]
    takes = [each for each in found if each["task"] == "take" and each["state"] == "success"]
    last = max(each["ended"] for each in takes)
    return {
        "txsaga": done,
        "wait_s": last - began,
        "stall_s": free_time(found, began, last),
        "runs": float(len({each["run"] for each in takes})),
    }


def free_time(tasks: Iterable[dict[str, Any]], begin: float, end: float) -> float:
    """Return for how many seconds fewer tasks were at work than there are slots."""
    edges = [(begin, 0), (end, 0)]
    for each in tasks:
        if each["ended"] > begin and each["started"] < end:
            edges += [(max(begin, each["started"]), 1), (min(end, each["ended"]), -1)]
    busy, free, since = 0, 0.0, begin
    for at, change in sorted(edges):
        if busy < SLOTS:
            free += at - since
        busy, since = busy + change, at
    return free


def _written(engine: Any) -> tuple[int, int]:  # an engine
    with engine.connect() as connection:
        written, distinct = connection.execute(text(COUNT)).one()
    return written, distinct


def _tasks(host: HostedAirflow) -> Iterator[dict[str, Any]]:
    """Yield what tasks of the flow took a slot, and when."""
    for each in _pages(host, f"dags/{DAG}/dagRuns/~/taskInstances"):
        if each["start_date"] and each["end_date"] and each["task_id"] != "seal":
            moments = {name: _moment(each[f"{place}_date"]) for name, place in (("started", "start"), ("ended", "end"))}
            yield {"task": each["task_id"], "run": each["dag_run_id"], "state": each["state"], **moments}


def _pages(host: HostedAirflow, path: str) -> Iterator[dict[str, Any]]:
    """Yield all rows of a list."""
    name, offset = "task_instances" if path.endswith("taskInstances") else "dag_runs", 0
    while True:
        found = host.api.ask("GET", f"{path}?limit={PAGE}&offset={offset}")
        yield from found[name]
        offset += PAGE
        if offset >= found["total_entries"]:
            return


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
