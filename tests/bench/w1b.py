"""W1b: 10,000 messages of 190 B in one transaction, beside a bare COPY of the same bytes by the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.bench.w1 import broker_of
from txsaga import LocalState
from txsaga.broker import Broker

COUNT = 10_000
BODIES = [b"%08d" % at + b"x" * 182 for at in range(COUNT)]


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    del seconds  # one transaction at a time is the unit
    home.execute("DROP TABLE IF EXISTS copied")
    home.execute("CREATE TABLE copied(body bytea)")
    with broker_of(home.namespace()) as broker:
        return [alternate("10000 messages", rounds, lambda: _ours(broker), {"copy": lambda: _copy(home)})], []


def _ours(broker: Broker) -> Mapping[str, float]:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    producer.commit(producer.prepare_now("orders", b"warm"))
    started = time.perf_counter()
    with producer.transaction() as tx:
        tx.send_many("orders", BODIES)
        tx.prepare()
        prepared = time.perf_counter()
    ended = time.perf_counter()
    singles = _one_by_one(broker)
    return {
        "txsaga": COUNT / (ended - started),
        "decision_ms": 1000 * (ended - prepared),
        "send_each_per_s": singles,
    }


def _one_by_one(broker: Broker) -> float:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    started = time.perf_counter()
    with producer.transaction() as tx:
        for body in BODIES:
            tx.send("orders", body)
    return COUNT / (time.perf_counter() - started)


def _copy(home: Home) -> float:
    with psycopg.connect(home.url(driver=None)) as connection:
        started = time.perf_counter()
        with connection.cursor().copy("COPY copied (body) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["bytea"])
            for body in BODIES:
                copy.write_row((body,))
        connection.commit()
        return COUNT / (time.perf_counter() - started)
