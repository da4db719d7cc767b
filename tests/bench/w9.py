"""W9: pages of the console with 100,000 transactions in the store: p95 of each, and what 50 open pages cost."""

from __future__ import annotations

import time
from contextlib import ExitStack

import httpx
import psycopg

import txsaga
from tests.bench.home import Home
from tests.bench.report import Row
from tests.bench.w1 import BODY, broker_of
from tests.console.listening import listening
from txsaga import LocalState
from txsaga.broker import Broker
from txsaga.console.access import COOKIE, OwnGuard
from txsaga.console.app import create_app
from txsaga.console.home import Home as Store
from txsaga.console.people import Person, Rank
from txsaga.core.layout import lay_out
from txsaga.core.message import Message

COUNT, TIMES, OPEN = 100_000, 60, 50
FILL = """
INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, keyed, body)
SELECT t, 1, 1 + t % 8, 0, 1, true, decode('{body}', 'hex') FROM generate_series({low}, {high}) t;
INSERT INTO {s}.tx (txid, pgroup, key, epoch, state, run)
SELECT t, 1, 'order-' || t, 1, 'committed', 'airflow:transfer/' || t FROM generate_series({low}, {high}) t;
INSERT INTO {s}.part (txid, part, attempt) SELECT t, 0, 0 FROM generate_series({low}, {high}) t;
INSERT INTO {s}.op (txid, decision, keyed) SELECT t, 1, true FROM generate_series({low}, {high}) t;
SELECT setval('{s}.tx_seq', {high})"""
PATHS = {
    "list": "/",
    "list: by key": "/?key=order-{id}",
    "list: by DAG run": "/?run=airflow:transfer/{id}",
    "list: by state": "/?state=rolled_back",
    "list: by topic": "/?topic=orders",
    "transaction": "/transactions/{id}",
}


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    url = home.namespace()
    with broker_of(url) as broker:
        _fill(home, broker, url)
        guard = OwnGuard()
        app = create_app(Store(lambda: txsaga.connect(url, roles=False, answering=False, env={})), guard)
        with listening(app) as address, httpx.Client(base_url=address, timeout=60) as client:
            client.cookies.set(COOKIE, guard.session(Person("bench", Rank.ADMIN)))
            rows = [_timed(client, case, path, rounds) for case, path in PATHS.items()]
            rows.append(_idle(client, seconds, rounds))
    return rows, []


def _timed(client: httpx.Client, case: str, path: str, rounds: int) -> Row:
    row = Row(f"{case}, p95")
    for turn in range(rounds):
        times = []
        for at in range(TIMES):
            started = time.perf_counter()
            answer = client.get(path.format(id=1_000 + 997 * at + turn), headers={"accept": "text/html"})
            times.append(1000 * (time.perf_counter() - started))
            assert answer.status_code == 200, answer.text
        row.add(sorted(times)[int(0.95 * TIMES)])
    return row


def _idle(client: httpx.Client, seconds: float, rounds: int) -> Row:
    """Return the processor time of this process per second while pages are open and nothing happens, in percent."""
    row = Row(f"{OPEN} open pages: percent of a core", unit="%")
    with ExitStack() as opened:
        for _ in range(OPEN):
            opened.enter_context(client.stream("GET", "/api/v1/events"))
        for _ in range(rounds):
            before = time.process_time()
            time.sleep(max(seconds, 5))
            row.add(100 * (time.process_time() - before) / max(seconds, 5))
    return row


def _fill(home: Home, broker: Broker, url: str) -> None:
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    namespace = url.rpartition("=")[2]
    body = lay_out([Message("orders", BODY)]).hex()
    low = producer.prepare_now("orders", BODY).txid + 1
    broker.kernel.store.log.extend_partitions(1_000_000)
    with psycopg.connect(home.url(driver=None), autocommit=True) as connection:
        connection.execute(FILL.format(s=namespace, body=body, low=low, high=COUNT))
        connection.execute(f"ANALYZE {namespace}.half, {namespace}.op, {namespace}.tx")
