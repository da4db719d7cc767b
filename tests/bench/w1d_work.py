"""W1d `work`: 16 consumers receive and acknowledge messages that were sent one by one.

Baseline: the queue that a Python programmer writes by hand with the same driver: a table, `SKIP LOCKED`, delete, one
commit per batch of the same size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count

import psycopg

from tests.bench.home import Home
from tests.bench.report import Row, alternate
from txsaga import connect
from txsaga.engine.broker import Broker
from txsaga.wiring import open_store

COUNT, CONSUMERS, BATCH = 40_000, 16, 32
BODY = b"x" * 100
JOBS = """
DROP TABLE IF EXISTS jobs;
CREATE TABLE jobs(id bigserial PRIMARY KEY, body bytea NOT NULL)"""
TAKE = "SELECT id, body FROM jobs ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
DONE = "DELETE FROM jobs WHERE id = ANY (%s)"


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    del seconds
    turns = count()
    address = home.namespace()
    open_store(address).close()
    with connect(address, roles=False, env={}) as broker:
        broker.create_topic("work")
        fill(broker, COUNT)
        row = alternate(
            "work", rounds, lambda: _ours(home, broker, next(turns)), {"skip-locked": lambda: _by_hand(home)}
        )
    return [row], []


def fill(broker: Broker, messages: int) -> None:
    """Send messages one by one and give them offsets."""
    producer = broker.producer("bench")
    for _ in range(0, messages, 1_000):
        for sent in [producer.submit("work", BODY) for _ in range(1_000)]:
            sent.result()
    dispatcher = broker.roles()[0]
    while dispatcher.run_once():
        pass


def _ours(home: Home, broker: Broker, turn: int) -> Mapping[str, float]:
    consumers = [broker.consumer(f"work-{turn}", ["work"], batch=BATCH) for _ in range(CONSUMERS)]

    def work(at: int) -> int:
        messages = consumers[at].receive()
        consumers[at].ack(messages)
        return len(messages)

    cpu = home.server_seconds()
    rate = _drained(work)
    cpu = home.server_seconds() - cpu
    for consumer in consumers:
        consumer.close()
    return {"txsaga": rate, "server_us": 1e6 * cpu / COUNT}


def _by_hand(home: Home) -> float:
    home.execute(JOBS)
    with psycopg.connect(home.url(driver=None)) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY jobs(body) FROM STDIN") as copy:
            for _ in range(COUNT):
                copy.write_row([BODY])
    home.execute("VACUUM ANALYZE jobs")
    connections = [psycopg.connect(home.url(driver=None)) for _ in range(CONSUMERS)]

    def work(at: int) -> int:
        with connections[at].transaction():
            rows = connections[at].execute(TAKE, [BATCH]).fetchall()
            connections[at].execute(DONE, [[id for id, _ in rows]])
        return len(rows)

    try:
        return _drained(work)
    finally:
        for connection in connections:
            connection.close()


def _drained(work: Callable[[int], int]) -> float:
    """Let every consumer work until nothing is left; return messages per second."""
    done = [0] * CONSUMERS
    failures: list[Exception] = []

    def drain(at: int) -> None:
        try:
            while sum(done) < COUNT:
                done[at] += work(at)
        except Exception as failure:  # noqa: BLE001  # raised by the caller
            failures.append(failure)
            done[at] = COUNT

    threads = [threading.Thread(target=drain, args=(at,)) for at in range(CONSUMERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return COUNT / (time.perf_counter() - started)
