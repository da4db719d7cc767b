"""W8: W1 with a million settled transactions in the store, beside the empty store; and the in-doubt scan."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.bench.w1 import BODY, broker_of, from_tasks
from txsaga import Decision, LocalState
from txsaga.broker import Broker
from txsaga.core.layout import lay_out
from txsaga.core.message import Message

IN_DOUBT = 100
FILL = """
INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body)
SELECT t, 1, 1 + t % 8, 0, 1, decode('{body}', 'hex') FROM generate_series({low}, {high}) t;
INSERT INTO {s}.op (txid, decision) SELECT t, 1 FROM generate_series({low}, {high}) t;
SELECT setval('{s}.tx_seq', {high})"""


def run(home: Home, seconds: float, rounds: int, history: int = 1_000_000) -> tuple[list[Row], list[str]]:
    url = home.namespace()
    with broker_of(url) as broker:
        _fill(home, broker, url, history)
        empty = from_tasks(64)
        row = alternate(
            "64 callers",
            rounds,
            lambda: _ours(broker, seconds),
            {"empty-store": lambda: empty(home, seconds)["txsaga"]},
        )
    return [row], []


def _ours(broker: Broker, seconds: float) -> Mapping[str, float]:
    from tests.bench.callers import tasks

    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

    async def call(_: int) -> None:
        await producer.decide(await producer.prepare("orders", BODY), Decision.COMMIT)

    calls = tasks(64, seconds, call)
    return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99), "scan_ms": _scan(broker)}


def _scan(broker: Broker) -> float:
    doubts = broker.kernel.store.doubts
    doubts.due(1_000)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        found = len(doubts.due(1_000))
        times.append(1000 * (time.perf_counter() - started))
        assert found == IN_DOUBT
    return sorted(times)[10]


def _fill(home: Home, broker: Broker, url: str, history: int) -> None:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    namespace = url.rpartition("=")[2]
    store = broker.kernel.store
    body = lay_out([Message("orders", BODY)]).hex()
    low = producer.prepare_now("orders", BODY).txid + 1
    with psycopg.connect(home.url(driver=None), autocommit=True) as connection:
        while low <= history:
            store.log.extend_partitions(1_000_000)
            high = min(low + 199_999, history)
            connection.execute(FILL.format(s=namespace, body=body, low=low, high=high))
            low = high + 1
        connection.execute(
            f"INSERT INTO {namespace}.doubt (txid, pgroup)"
            f" SELECT t, 1 FROM generate_series({history - IN_DOUBT + 1}, {history}) t"
        )
        connection.execute(f"DELETE FROM {namespace}.op WHERE txid > {history - IN_DOUBT} AND txid <= {history}")
        connection.execute(f"ANALYZE {namespace}.half, {namespace}.op")
