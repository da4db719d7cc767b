"""W1d: reading 500,000 small messages as a stream, by columnar batches and as message objects."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.bench.w1 import broker_of
from txsaga import LocalState
from txsaga.broker import Broker
from txsaga.core.layout import Batch

COUNT = 500_000
PER_TRANSACTION = 20_000
EVERY = 8
"""Chunks per commit of the position."""


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    del seconds
    with broker_of(home.namespace()) as broker:
        _fill(broker)
        turns = iter(range(1_000))
        row = alternate("stream", rounds, lambda: _read(home, broker, next(turns)), {})
    return [row], []


def _fill(broker: Broker) -> None:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    for first in range(0, COUNT, PER_TRANSACTION):
        with producer.transaction() as tx:
            tx.send_many("orders", [b"message %08d" % at for at in range(first, first + PER_TRANSACTION)])
    dispatcher = broker.roles()[0]
    while dispatcher.run_once():
        pass


def _read(home: Home, broker: Broker, turn: int) -> Mapping[str, float]:
    cpu, started = home.server_seconds(), time.perf_counter()
    stream = broker.stream(f"columns-{turn}", ["orders"])
    count = size = committed = 0
    read: dict[int, Batch] = {}
    while count < COUNT:
        batch = stream.poll()
        assert batch is not None
        count += len(batch)
        size += sum(map(len, batch.bodies))
        read[batch.qid] = batch
        if len(batch) * EVERY <= count - committed:
            for last in read.values():
                stream.commit(last)
            read, committed = {}, count
    seconds = time.perf_counter() - started
    cpu = home.server_seconds() - cpu
    stream.close()
    return {
        "txsaga": count / seconds,
        "objects_per_s": _as_objects(broker, turn),
        "server_us": 1e6 * cpu / count,
    }


def _as_objects(broker: Broker, turn: int) -> float:
    stream = broker.stream(f"objects-{turn}", ["orders"])
    started = time.perf_counter()
    size = 0
    for at, message in enumerate(stream.messages(wait=5), start=1):
        size += len(message.body)
        if at == COUNT:
            break
    seconds = time.perf_counter() - started
    stream.close()
    return COUNT / seconds
