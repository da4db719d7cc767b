"""W2r: 1,500 prepared branches of decided transactions over three servers, their owner killed by -9; then recovery.

The second case has a fourth resource with a branch of every fifth transaction, whose server is gone, in turn with the
first. What counts is the time until no branch of the three is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

import psycopg
from sqlalchemy import create_engine

import txsaga
from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.services.embedded import embedded_server
from txsaga import LocalState
from txsaga.embedded.launch import StopMode
from txsaga.embedded.server import EmbeddedServer
from txsaga.flows.recovery import FRESH, Recovery
from txsaga.flows.work import PhaseTwoResult, Work
from txsaga.wiring.connecting import open_store

TRANSACTIONS, SERVERS, EVERY = 500, 3, 5
TABLE = "CREATE TABLE IF NOT EXISTS booking(v bigint)"
MANY = {"max_prepared_transactions": "1000", "max_connections": "50"}
DEAD = "dead"


def run(home: Home, _: float, rounds: int) -> tuple[list[Row], list[str]]:
    with ExitStack() as opened:
        servers = {f"r{at}": opened.enter_context(embedded_server(MANY)) for at in range(SERVERS)}
        urls = {name: _ready(server) for name, server in servers.items()}
        beside, alone = partial(_beside_a_dead_one, home, urls), partial(_recovered, home, urls)
        dead = alternate("branches, one resource dead", rounds, beside, {"none dead": lambda: alone()["txsaga"]})
    return [Row("branches", dead.baselines["none dead"]), dead], []


def _ready(server: EmbeddedServer) -> str:
    server.database("bench")
    with psycopg.connect(server.url("bench", driver=None), autocommit=True) as connection:
        connection.execute(TABLE)
    return server.url("bench", driver="psycopg")


def _beside_a_dead_one(home: Home, urls: Mapping[str, str]) -> Mapping[str, float]:
    with embedded_server(MANY) as dead:
        return _recovered(home, {**urls, DEAD: _ready(dead)}, dead)


def _recovered(home: Home, urls: Mapping[str, str], dead: EmbeddedServer | None = None) -> Mapping[str, float]:
    namespace = home.namespace()
    child = [sys.executable, "-m", "tests.bench.w2r", namespace, *(f"{name}={url}" for name, url in urls.items())]
    subprocess.run(child, check=False, timeout=300)
    if dead is not None:
        dead.stop(StopMode.IMMEDIATE)
    time.sleep(FRESH.total_seconds())
    engines = {name: create_engine(url, connect_args={"connect_timeout": 10}) for name, url in urls.items()}
    broker = txsaga.connect(namespace, resources=engines, roles=False, answering=False, env={})
    try:
        found = sum(
            _prepared(engines[name].url.render_as_string(hide_password=False)) for name in engines if name != DEAD
        )
        if found < TRANSACTIONS * SERVERS:
            raise RuntimeError(f"only {found} branches were prepared")
        before = time.perf_counter()
        recovery = Recovery(broker.kernel)
        while any(branch.resource != DEAD for branch, _ in broker.kernel.store.work.unfinished(limit=10_000)):
            recovery.run_once()
        seconds = time.perf_counter() - before
    finally:
        broker.close()
        for engine in engines.values():
            engine.dispose()
    return {"txsaga": seconds}


def _prepared(url: str) -> int:
    with psycopg.connect(url.replace("postgresql+psycopg:", "postgresql:")) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def prepare(namespace: str, urls: Mapping[str, str]) -> None:
    """Decide transactions and tell no resource, then end by kill -9."""
    Work.finish = lambda *_: PhaseTwoResult([], {}, [])  # type: ignore[method-assign]
    engines = {name: create_engine(url) for name, url in urls.items()}
    open_store(namespace).close()
    broker = txsaga.connect(namespace, resources=engines, roles=False, answering=False, env={})
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    for at in range(TRANSACTIONS):
        names = [name for name in engines if name != DEAD or at % EVERY == 0]
        with producer.coordinated(*names) as tx:
            for name in names:
                with tx.on(name) as connection:
                    connection.exec_driver_sql("INSERT INTO booking(v) VALUES (1)")
    os.kill(os.getpid(), 9)


if __name__ == "__main__":
    prepare(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:]))
