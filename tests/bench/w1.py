"""W1: one half message of 200 B, then its decision, both durable, no local work.

Dispatching runs in its own process in real use; here nothing dispatches, as the floor has none either. The floor of 256
callers has 64 clients: ours share one session, there each has its own, and the server takes no 256.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.callers import Calls, tasks, threads
from tests.bench.home import Home, pgbench, run_pgbench
from tests.bench.peers import dtm, unbuilt
from tests.bench.report import Row, absent, alternate
from txsaga import Decision, LocalState
from txsaga.broker import Broker
from txsaga.wiring.connecting import connect, open_store

BODY = b"x" * 200
TWO_COMMITS = r"""\set n random(1, 1000000000)
INSERT INTO t(v) VALUES (:n);
INSERT INTO outbox(v) VALUES (:n);
"""


def broker_of(url: str) -> Broker:
    open_store(url).close()
    broker = connect(url, roles=False, env={})
    broker.create_topic("orders", "transaction")
    return broker


def blocking(broker: Broker) -> Callable[[int], None]:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

    def call(_: int) -> None:
        producer.commit(producer.prepare_now("orders", BODY))

    return call


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    """Measure all cases; baselines that are not installed are named."""
    tool, folder = pgbench(), dtm.built()
    home.execute("DROP TABLE IF EXISTS t, outbox")
    home.execute("CREATE TABLE t(v bigint); CREATE TABLE outbox(id bigserial PRIMARY KEY, v bigint)")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        script = Path(place) / "two_commits.sql"
        script.write_text(TWO_COMMITS)
        if folder:
            stack.enter_context(dtm.running(home, folder))
        rows = []
        for case, clients, ours in CASES:
            baselines: dict[str, Callable[[], float]] = {}
            if tool:
                baselines["two-commits"] = partial(run_pgbench, tool, script, home.url(driver=None), clients, seconds)
            if folder and case in AGAINST_DTM:
                baselines["dtm"] = partial(dtm.rate, clients, seconds)
            rows.append(alternate(case, rounds, partial(ours, home, seconds), baselines))
    return rows, [*([] if tool else [absent("pgbench", "apt-get install -y postgresql")]), *unbuilt({"dtm": folder})]


Begin = Callable[[], object]


def _measured(home: Home, measure: Callable[[Broker, Begin], Calls]) -> Mapping[str, float]:
    before: list[tuple[float, float]] = []
    with broker_of(home.namespace()) as broker:
        calls = measure(broker, lambda: before.append((home.wal(), home.server_seconds())))
        ((wal, cpu),) = before
        done = len(calls.latencies)
        return {
            "txsaga": calls.rate,
            "server_us": 1e6 * (home.server_seconds() - cpu) / done,
            "wal_bytes": (home.wal() - wal) / done,
            "p99_ms": calls.percentile_ms(0.99),
        }


def from_threads(count: int) -> Callable[[Home, float], Mapping[str, float]]:
    def measure(home: Home, seconds: float) -> Mapping[str, float]:
        return _measured(home, lambda broker, begin: threads(count, seconds, blocking(broker), begin))

    return measure


def from_tasks(count: int) -> Callable[[Home, float], Mapping[str, float]]:
    def measure(home: Home, seconds: float) -> Mapping[str, float]:
        def calls(broker: Broker, begin: Begin) -> Calls:
            producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

            async def call(_: int) -> None:
                receipt = await producer.prepare("orders", BODY)
                standing = await producer.decide(receipt, Decision.COMMIT)
                assert standing.decision is Decision.COMMIT

            return tasks(count, seconds, call, begin)

        return _measured(home, calls)

    return measure


AGAINST_DTM = {"16 threads", "64 threads", "16 callers", "64 callers"}
CASES = [
    ("1 caller", 1, from_threads(1)),
    ("16 callers", 16, from_tasks(16)),
    ("64 callers", 64, from_tasks(64)),
    ("256 callers", 64, from_tasks(256)),
    ("16 threads", 16, from_threads(16)),
    ("64 threads", 64, from_threads(64)),
]
