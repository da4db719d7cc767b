"""W1c: from decision to handler at 1,000 transactions per second offered; dispatcher and reader run beside."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection

from tests.bench.beside import beside
from tests.bench.home import Home
from tests.bench.report import Row, alternate
from tests.bench.w1 import broker_of
from txsaga import Decision, LocalState
from txsaga.core.role_loop import Loop
from txsaga.wiring.connecting import connect

RATE = 1_000
TICK = 0.01


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    return [alternate("1000 offered", rounds, lambda: _ours(home, max(seconds, 3.0)), {})], []


def _ours(home: Home, seconds: float) -> Mapping[str, float]:
    url = home.namespace()
    broker_of(url).close()
    with beside(dispatch, url):
        return _deliver(url, seconds)


def _deliver(url: str, seconds: float) -> Mapping[str, float]:
    decided: dict[int, float] = {}
    seen: dict[int, float] = {}
    stop = threading.Event()
    with connect(url, roles=False, env={}) as broker:
        reader = threading.Thread(target=_read, args=(url, seen, stop))
        reader.start()
        producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
        started = time.perf_counter()
        for turn in range(int(seconds / TICK)):
            receipts = [producer.prepare("orders", b"x" * 200) for _ in range(int(RATE * TICK))]
            standings = [producer.decide(receipt.result(), Decision.COMMIT) for receipt in receipts]
            for standing in standings:
                decided[standing.result().txid] = time.perf_counter()
            time.sleep(max(0.0, started + (turn + 1) * TICK - time.perf_counter()))
        offered = len(decided) / (time.perf_counter() - started)
        end = time.perf_counter() + 10
        while len(seen) < len(decided) and time.perf_counter() < end:
            time.sleep(0.01)
        stop.set()
        reader.join()
    late = sorted(1000 * (seen[txid] - moment) for txid, moment in decided.items())
    return {
        "txsaga": late[len(late) // 2],
        "p99_ms": late[int(len(late) * 0.99)],
        "offered_per_s": offered,
    }


def _read(url: str, seen: dict[int, float], stop: threading.Event) -> None:
    with connect(url, roles=False, env={}) as broker:
        stream = broker.stream("readers", ["orders"])
        while not stop.is_set():
            for batch in stream.batches(wait=0.2):
                seen[batch.entry.txid] = time.perf_counter()
        stream.close()


def dispatch(url: str, pipe: Connection) -> None:
    with connect(url, roles=False, env={}) as broker:
        loop = Loop(broker.roles()[:1])
        loop.start()
        pipe.send("ready")
        pipe.recv()
        loop.stop()
