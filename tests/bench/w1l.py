"""W1L: the same with a local row in another database, evidence included; and in the same database.

Baseline: the outbox that a Python programmer writes by hand with the same driver: business row and outbox row
in one commit, and a relay that marks what it sent. The relay runs in a process of its own, and so does our dispatcher.
Callers are tasks of asyncio's, on both sides; threads are where they are called so, and in the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection

import psycopg
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.beside import beside
from tests.bench.callers import tasks, threads
from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.bench.w1 import BODY, broker_of
from tests.bench.w1c import dispatch
from txsaga import LocalState

TABLES = """
DROP TABLE IF EXISTS business, outgoing;
CREATE TABLE business(id bigserial PRIMARY KEY, v bigint);
CREATE TABLE outgoing(id bigserial PRIMARY KEY, body bytea NOT NULL, sent bool NOT NULL DEFAULT false);
CREATE INDEX ON outgoing(id) WHERE NOT sent"""
WORK = text("INSERT INTO business(v) VALUES (1)")
OUTGOING = text("INSERT INTO outgoing(body) VALUES (:body)")


Ours = Callable[[Home, int, float], Mapping[str, float]]
Outbox = Callable[[Home, str, int, float], float]


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    for database in ("bench", "other"):
        home.execute(TABLES, database)
    rows = []
    for case, count, measure, outbox in CASES:
        database = "bench" if measure in (_same, _same_tasks) else "other"

        def baseline(outbox: Outbox = outbox, count: int = count, database: str = database) -> float:
            return outbox(home, database, count, seconds)

        def ours(measure: Ours = measure, count: int = count) -> Mapping[str, float]:
            return measure(home, count, seconds)

        rows.append(alternate(case, rounds, ours, {"outbox": baseline}))
    return rows, []


def _pool(home: Home, database: str, size: int) -> Engine:
    return create_engine(home.url(database), pool_size=size, max_overflow=0)


def _local(home: Home, count: int, seconds: float) -> Mapping[str, float]:
    url = home.namespace()
    with broker_of(url) as broker, beside(dispatch, url):
        engine = _pool(home, "other", count)
        broker.register("billing", engine)
        producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

        def call(_: int) -> None:
            with producer.transaction() as tx:
                tx.send("orders", BODY)
                with tx.local("billing") as connection:
                    connection.execute(WORK)

        call(0)
        calls = threads(count, seconds, call)
        engine.dispose()
    return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}


def _local_tasks(home: Home, count: int, seconds: float) -> Mapping[str, float]:
    url = home.namespace()
    with broker_of(url) as broker, beside(dispatch, url):
        engine = create_async_engine(home.url("other"), pool_size=count, max_overflow=0)
        broker.register("billing", engine)
        producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

        async def call(_: int) -> None:
            async with producer.transaction() as tx:
                await tx.send("orders", BODY)
                async with tx.local("billing") as connection:
                    await connection.execute(WORK)

        calls = tasks(count, seconds, call, close=engine.dispose)
    return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}


def _same(home: Home, count: int, seconds: float) -> Mapping[str, float]:
    url = home.namespace()
    with broker_of(url) as broker, beside(dispatch, url):
        engine = _pool(home, "bench", count)
        producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

        def call(_: int) -> None:
            with engine.begin() as connection:
                connection.execute(WORK)
                producer.join(connection).send("orders", BODY)

        call(0)
        calls = threads(count, seconds, call)
        engine.dispose()
    return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}


def _same_tasks(home: Home, count: int, seconds: float) -> Mapping[str, float]:
    url = home.namespace()
    with broker_of(url) as broker, beside(dispatch, url):
        engine = create_async_engine(home.url("bench"), pool_size=count, max_overflow=0)
        producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

        async def call(_: int) -> None:
            async with engine.begin() as connection:
                await connection.execute(WORK)
                await producer.join(connection).send("orders", BODY)

        calls = tasks(count, seconds, call, close=engine.dispose)
    return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}


def _outbox(home: Home, database: str, count: int, seconds: float) -> float:
    engine = _pool(home, database, count)

    def call(_: int) -> None:
        with engine.begin() as connection:
            connection.execute(WORK)
            connection.execute(OUTGOING, {"body": BODY})

    with beside(relay, home.url(database, None)):
        rate = threads(count, seconds, call).rate
    engine.dispose()
    return rate


def _outbox_tasks(home: Home, database: str, count: int, seconds: float) -> float:
    engine = create_async_engine(home.url(database), pool_size=count, max_overflow=0)

    async def call(_: int) -> None:
        async with engine.begin() as connection:
            await connection.execute(WORK)
            await connection.execute(OUTGOING, {"body": BODY})

    with beside(relay, home.url(database, None)):
        return tasks(count, seconds, call, close=engine.dispose).rate


def relay(url: str, told: Connection) -> None:
    """Mark what was sent, until told to stop."""
    with psycopg.connect(url, autocommit=True) as connection:
        told.send("ready")
        while not told.poll(0):
            sent = connection.execute(
                "UPDATE outgoing SET sent = true WHERE id IN"
                " (SELECT id FROM outgoing WHERE NOT sent ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING id"
            ).fetchall()
            if not sent:
                told.poll(0.01)


CASES: list[tuple[str, int, Ours, Outbox]] = [
    ("16 callers", 16, _local_tasks, _outbox_tasks),
    ("64 callers", 64, _local_tasks, _outbox_tasks),
    ("16 threads", 16, _local, _outbox),
    ("64 threads", 64, _local, _outbox),
    ("same database", 16, _same, _outbox),
    ("same database, callers", 16, _same_tasks, _outbox_tasks),
]
