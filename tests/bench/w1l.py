"""W1L: the same with a local row in another database, evidence included; and in the same database.

Baseline: the outbox that a Python programmer writes by hand with the same driver: business row and outbox row
in one commit, and a relay that marks what it sent. The relay runs in a process of its own, and so does our dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection

import psycopg
from sqlalchemy import Engine, create_engine, text

from tests.bench.beside import beside
from tests.bench.callers import threads
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


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    for database in ("bench", "other"):
        home.execute(TABLES, database)
    rows = []
    for case, count, measure in (("16 callers", 16, _local), ("64 callers", 64, _local), ("same database", 16, _same)):
        database = "bench" if measure is _same else "other"

        def baseline(count: int = count, database: str = database) -> float:
            return _outbox(home, database, count, seconds)

        def ours(
            measure: Callable[[Home, int, float], Mapping[str, float]] = measure, count: int = count
        ) -> Mapping[str, float]:
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


def _outbox(home: Home, database: str, count: int, seconds: float) -> float:
    engine = _pool(home, database, count)
    insert = text("INSERT INTO outgoing(body) VALUES (:body)")

    def call(_: int) -> None:
        with engine.begin() as connection:
            connection.execute(WORK)
            connection.execute(insert, {"body": BODY})

    with beside(relay, home.url(database, None)):
        rate = threads(count, seconds, call).rate
    engine.dispose()
    return rate


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
