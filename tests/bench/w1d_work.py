"""W1d `work`: 16 consumers receive and acknowledge messages.

Baseline: the queue that a Python programmer writes by hand with the same driver: a table, `SKIP LOCKED`, delete.
`work` is a loop over single messages on both sides; the other cases take and acknowledge 32 at once on both sides, of
messages that were sent one by one, or in transactions of many. `receive` is how much longer the slowest hundredth
of single receives takes with a million messages waiting than with none.
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
from txsaga.broker import Broker
from txsaga.consume.consumer import Consumer
from txsaga.wiring.connecting import open_store

COUNT, CONSUMERS, BATCH = 40_000, 16, 32
WAITING, RECEIVES = 1_000_000, 1_000
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
        for topic, send in (("work", fill), ("chunks", fill_chunks)):
            broker.create_topic(topic)
            send(broker, topic, COUNT)

        def case(name: str, topic: str, ways: Callable[[Consumer], Callable[[], int]], size: int) -> Row:
            def ours() -> Mapping[str, float]:
                return _ours(home, broker, f"{name} {next(turns)}".replace(" ", "-").replace(",", ""), topic, ways)

            return alternate(name, rounds, ours, {"skip-locked": lambda: _by_hand(home, size)})

        rows = [
            case("work", "work", _loop, 1),
            case("work, batches", "work", _batches, BATCH),
            case("work, batches of chunks", "chunks", _batches, BATCH),
        ]
        rows.append(alternate("receive", rounds, lambda: _receive(broker), {}, unit="times"))
    return rows, []


def fill(broker: Broker, topic: str, messages: int) -> None:
    """Send messages one by one and give them offsets."""
    producer = broker.producer("bench")
    for _ in range(0, messages, 1_000):
        for sent in [producer.submit(topic, BODY) for _ in range(1_000)]:
            sent.result()
    _dispatch(broker)


def fill_chunks(broker: Broker, topic: str, messages: int) -> None:
    """Send messages many at a time and give them offsets."""
    producer = broker.producer("bench")
    for _ in range(0, messages, 8_000):
        producer.send_many(topic, [BODY] * 8_000)
    _dispatch(broker)


def _dispatch(broker: Broker) -> None:
    dispatcher = broker.roles()[0]
    while dispatcher.run_once():
        pass


def _loop(consumer: Consumer) -> Callable[[], int]:
    """Work as a user does: message by message."""
    messages = consumer.messages(wait=0.5)

    def work() -> int:
        message = next(messages, None)
        if message is None:
            return 0
        with message:
            pass  # the work itself
        return 1

    return work


def _batches(consumer: Consumer) -> Callable[[], int]:
    """Take and acknowledge many at once."""

    def work() -> int:
        messages = consumer.receive()
        consumer.ack(messages)
        return len(messages)

    return work


def _receive(broker: Broker) -> Mapping[str, float]:
    """Time one receive with a million messages waiting, and with no other than the one that comes."""
    name = f"waiting-{time.time_ns()}"
    broker.create_topic(name)
    fill_chunks(broker, name, WAITING)
    few = f"few-{time.time_ns()}"
    broker.create_topic(few)
    with broker.consumer(few, [few]) as idle, broker.consumer(name, [name]) as busy:

        def one_more() -> None:
            broker.producer("bench").send(few, BODY)
            _dispatch(broker)

        empty = _p99(idle, one_more)
        waiting = _p99(busy, lambda: None)
    return {"txsaga": waiting / empty, "waiting_p99_ms": waiting, "empty_p99_ms": empty}


def _p99(consumer: Consumer, before: Callable[[], None]) -> float:
    times = []
    for _ in range(RECEIVES):
        before()
        started = time.perf_counter()
        messages = consumer.receive(1)
        times.append(1000 * (time.perf_counter() - started))
        consumer.ack(messages)
    return sorted(times)[int(RECEIVES * 0.99)]


def _ours(
    home: Home, broker: Broker, group: str, topic: str, ways: Callable[[Consumer], Callable[[], int]]
) -> Mapping[str, float]:
    consumers = [broker.consumer(group, [topic], batch=BATCH) for _ in range(CONSUMERS)]
    works = [ways(consumer) for consumer in consumers]
    cpu = home.server_seconds()
    rate = _drained(lambda at: works[at]())
    cpu = home.server_seconds() - cpu
    for consumer in consumers:
        consumer.close()
    return {"txsaga": rate, "server_us": 1e6 * cpu / COUNT}


def _by_hand(home: Home, size: int) -> float:
    home.execute(JOBS)
    with psycopg.connect(home.url(driver=None)) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY jobs(body) FROM STDIN") as copy:
            for _ in range(COUNT):
                copy.write_row([BODY])
    home.execute("VACUUM ANALYZE jobs")
    connections = [psycopg.connect(home.url(driver=None)) for _ in range(CONSUMERS)]

    def work(at: int) -> int:
        with connections[at].transaction():
            rows = connections[at].execute(TAKE, [size]).fetchall()
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
