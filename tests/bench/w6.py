"""W6: sagas of five steps (SQL on PostgreSQL), the last of which fails, until they are undone; and two steps, success.

`killed`: a program with a thousand sagas in their fifth step is killed by -9 while another process runs the engine
(every role). `late_s` is the longest time between the end of a saga's lease and its last compensation, `seconds` the
time from the first end of a lease until all are undone. What was undone is counted in the database: a missing or a
double one fails the run. DBOS and Restate do the same inserts in their steps, dtm behind HTTP branches.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial

import psycopg
from sqlalchemy import create_engine

import txsaga
from tests.bench.callers import threads
from tests.bench.home import Home
from tests.bench.peers import dbos, dtm, restate, unbuilt
from tests.bench.peers.dtm import saga as dtm_saga
from tests.bench.report import Row, alternate
from tests.bench.w1 import broker_of
from txsaga.broker import Broker
from txsaga.wiring.connecting import open_store

TABLES = "CREATE TABLE IF NOT EXISTS booking(v bigint, n int); CREATE TABLE IF NOT EXISTS undone(v bigint, n int)"
DO = "INSERT INTO booking(v, n) VALUES (:v, :n)"
UNDO = "INSERT INTO undone(v, n) VALUES (:v, :n)"
WORK, LAST = "other", "last"
KILLED, POOL, CALLERS = 1_000, 16, 16
PATIENCE = 120.0
LEASES = "SELECT txid, until FROM {s}.saga"
ENDED = "SELECT txid, max(at) FROM {s}.step GROUP BY txid"

_numbers = itertools.count()


class Refused(Exception):
    """What the last step raises."""


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    """Measure; the peers that are not installed are named."""
    home.execute(TABLES, WORK)
    python, server, folder = dbos.built(), dtm.built(), restate.built()

    def theirs(case: str, callers: int) -> Mapping[str, Callable[[], float]]:
        found: dict[str, Callable[[], float]] = {}
        if python is not None:
            found["dbos"] = partial(dbos.rate, home, python, case, callers, seconds)
        if folder is not None:
            found["restate"] = partial(restate.rate, home, folder, case, callers, seconds)
        if server is not None and case == "five":
            found["dtm"] = partial(dtm_saga.rate, home, server, callers, seconds)
        return found

    rows = [
        alternate(
            f"{count} caller{'s' if count > 1 else ''}", rounds, _five(home, count, seconds), theirs("five", count)
        )
        for count in (1, CALLERS)
    ]
    rows.append(alternate("2 steps", rounds, _two(home, seconds), theirs("two", CALLERS)))
    rows.append(alternate("killed", 1, partial(_killed, home), {}))
    return rows, unbuilt({"dbos": python, "dtm": server, "restate": folder})


def travel(broker: Broker, last: Callable[..., object]) -> None:
    """Run one saga whose fifth step never comes to its end well."""
    v = next(_numbers)
    with broker.saga("travel") as saga:
        for n in range(1, 5):
            saga.step(DO, on=WORK, compensate=UNDO, input={"v": v, "n": n})
        saga.step(last, on=LAST, compensate=UNDO, input={"v": v, "n": 5})


def refuse(_: object, v: int, n: int) -> None:
    """Fail."""
    raise Refused


def nothing() -> None:
    """Do nothing."""


def _five(home: Home, count: int, seconds: float) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        engine = create_engine(home.url(WORK), pool_size=count, max_overflow=0)
        with broker_of(home.namespace()) as broker:
            broker.register(WORK, engine)
            broker.register(LAST, create_engine(home.url(WORK), pool_size=count, max_overflow=0))

            def call(_: int) -> None:
                with suppress(Refused):
                    travel(broker, refuse)

            call(0)
            calls = threads(count, seconds, call)
            if broker.kernel.store.work.sagas():
                raise RuntimeError("a saga was not undone to its end")
        engine.dispose()
        return {"txsaga": calls.rate, "p50_ms": calls.percentile_ms(0.5), "p99_ms": calls.percentile_ms(0.99)}

    return measure


def _two(home: Home, seconds: float) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        with broker_of(home.namespace()) as broker:

            def call(_: int) -> None:
                with broker.saga("travel") as saga:
                    saga.step(nothing)
                    saga.step(nothing)

            call(0)
            calls = threads(CALLERS, seconds, call)
        return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}

    return measure


def _killed(home: Home) -> Mapping[str, float]:
    namespace, work = home.namespace(), home.url(WORK)
    open_store(namespace).close()
    home.execute("TRUNCATE booking; TRUNCATE undone", WORK)
    resources = {f"TXSAGA_RESOURCE_{name.upper()}": work for name in (WORK, LAST)}
    env = {**os.environ, "TXSAGA_URL": namespace, **resources}
    subprocess.run([sys.executable, "-m", "tests.bench.w6", namespace, work], check=False, timeout=300)
    schema = namespace.rpartition("namespace=")[2]
    with psycopg.connect(home.url(driver=None), autocommit=True) as connection:
        leases: dict[int, datetime] = dict(connection.execute(LEASES.format(s=schema)).fetchall())
        if len(leases) < KILLED:
            raise RuntimeError(f"only {len(leases)} sagas were in their fifth step")
        with subprocess.Popen([sys.executable, "-m", "txsaga.cli", "engine"], env=env) as engine:
            try:
                _wait(connection, schema)
            finally:
                engine.terminate()
        ended: dict[int, datetime] = dict(connection.execute(ENDED.format(s=schema)).fetchall())
    _count(home)
    late = sorted((ended[txid] - until).total_seconds() for txid, until in leases.items())
    seconds = (max(ended.values()) - min(leases.values())).total_seconds()
    return {"txsaga": KILLED / seconds, "seconds": seconds, "late_s": late[-1], "late_p50_s": late[len(late) // 2]}


def _wait(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    end = time.monotonic() + PATIENCE
    while connection.execute(f"SELECT EXISTS (SELECT FROM {schema}.saga)").fetchone() == (True,):
        if time.monotonic() > end:
            raise RuntimeError("not all sagas were undone in time")
        time.sleep(0.05)


def _count(home: Home) -> None:
    """Hold what was undone against what was done."""
    with psycopg.connect(home.url(WORK, None), autocommit=True) as connection:
        done, undone, different = connection.execute(
            "SELECT (SELECT count(*) FROM booking), (SELECT count(*) FROM undone),"
            " (SELECT count(*) FROM (TABLE booking EXCEPT TABLE undone) x)"
        ).fetchone() or (0, 0, 0)
    if (undone, different) != (done, 0) or done != 4 * KILLED:
        raise RuntimeError(f"{done} steps were done, {undone} undone, {different} of them never")


def leave(namespace: str, work: str) -> None:
    """Bring a thousand sagas into their fifth step, then end by kill -9."""
    broker = txsaga.connect(namespace, roles=False, answering=False, env={})
    broker.register(WORK, create_engine(work, pool_size=POOL, max_overflow=0, pool_timeout=600))
    broker.register(LAST, create_engine(work, pool_size=POOL, max_overflow=0, pool_timeout=600))
    for name in (WORK, LAST):
        broker.kernel.resource(name)
    for _ in range(KILLED):
        threading.Thread(target=travel, args=(broker, _hang), daemon=True).start()
    store = broker.kernel.store.work
    while sum(view.steps == 5 for view in store.sagas(limit=2 * KILLED)) < KILLED:
        time.sleep(0.2)
    os.kill(os.getpid(), 9)


def _hang(_: object, v: int, n: int) -> None:
    threading.Event().wait()


if __name__ == "__main__":
    leave(*sys.argv[1:])
