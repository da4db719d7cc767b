"""W3: transactions in doubt whose producers are dead.

`10000 evidence`: local work committed in another database of the same server, then ten producers, with a thousand
open blocks each, killed by -9; `fenced` is the same, killed before the local work began. `10000 checker`: halves
about which one live member answers, in Python. In each a fresh engine process is started (all of its roles run), and
the time goes from its first round's start until a poll by SQL finds none undecided. Every decision is looked at.

So that nobody waits, the halves and the tick that the sweep goes by are made an hour older by SQL. dtm is measured
as it is: its own minimum age can't be shortened that way, so its clock also starts with its first check.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import psycopg

from tests.bench.home import Home
from tests.bench.peers import dtm, unbuilt
from tests.bench.peers.dtm import recovery
from tests.bench.report import Row, alternate
from tests.bench.w1 import BODY, broker_of
from tests.bench.w3_work import READY
from txsaga import LocalState
from txsaga.broker import Broker
from txsaga.checkback.round import CheckBack
from txsaga.core.layout import lay_out
from txsaga.core.message import Message

COUNT, KILLED = 10_000, 10
SETTLED = 100_000
BEGINS = "check-back round started"
AGED = """
UPDATE {s}.half SET born = born - interval '1 hour' WHERE txid NOT IN (SELECT txid FROM {s}.op);
UPDATE {s}.doubt SET check_at = check_at - interval '1 hour';
UPDATE {s}.lease SET until = until - interval '1 hour';
UPDATE {s}.tick SET at = at - interval '1 hour'"""
FILL = """
INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body)
SELECT nextval('{s}.tx_seq'), 1, 1 + t % 8, 0, 1, decode('{body}', 'hex') FROM generate_series(1, {count}) t;
INSERT INTO {s}.op (txid, decision) SELECT txid, 1 FROM {s}.half WHERE txid > {low} ORDER BY txid"""
WRITERS = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
"""What writes takes a number of the server; a look takes none."""
QUIET = 5
LONGEST = 60
"""Seconds after which no further round of a case begins."""
POLL = 0.02


def run(home: Home, seconds: float, rounds: int, peers: int = 0, count: int = COUNT) -> tuple[list[Row], list[str]]:
    """Measure recovery; dtm beside it with `peers` transactions, once: with all of them it takes minutes."""
    del seconds
    folder, skipped = dtm.built() if peers else None, list[str]()
    home.execute("DROP TABLE IF EXISTS business; CREATE TABLE business(id bigserial PRIMARY KEY, v bigint)", "other")
    rows = [
        _within(skipped, f"{count} evidence", rounds, partial(_recovered, home, "producing", count, 1)),
        *([_beside_dtm(home, folder, peers)] if folder else []),
        _within(skipped, f"{count} fenced", rounds, partial(_recovered, home, "closing", count, 2)),
        _within(skipped, f"{count} checker", rounds, partial(_answered, home, count)),
        _within(skipped, "idle round", rounds, partial(_idle, home), unit="ms"),
    ]
    if not peers:
        skipped.append("dtm is measured only by --peers N")
    elif folder is None:
        skipped += unbuilt({"dtm": None})
    return rows, skipped


def _within(skipped: list[str], case: str, rounds: int, ours: Callable[[], Mapping[str, float]], unit: str = "") -> Row:
    """Measure a case; say where time allowed fewer rounds."""
    row = alternate(case, rounds, ours, {}, unit=unit, within=LONGEST)
    if len(row.ours) < rounds:
        skipped.append(f"{case}: cut short after {len(row.ours)} of {rounds} rounds, which took {LONGEST} s or more")
    return row


def _beside_dtm(home: Home, folder: Path, count: int) -> Row:
    """Measure both once, with the same number of transactions."""
    theirs = partial(recovery.seconds, home, folder, count)
    return alternate(f"{count} beside dtm", 1, partial(_recovered, home, "producing", count, 1), {"dtm": theirs})


def _recovered(home: Home, part: str, count: int, decision: int) -> Mapping[str, float]:
    """Settle what killed producers left, by its evidence."""
    url = home.namespace()
    with broker_of(url), _played(home, part, url, count // KILLED, KILLED):
        pass  # and killed
    _age(home, url)
    seconds = _until_settled(home, url, count, decision)
    return {"txsaga": seconds}


def _answered(home: Home, count: int) -> Mapping[str, float]:
    """Settle what killed producers left, by the word of a member."""
    url = home.namespace()
    with broker_of(url), _played(home, "preparing", url, count):
        pass
    _age(home, url)
    with _played(home, "answering", url, 0):
        seconds = _until_settled(home, url, count, 1)
    return {"txsaga": seconds, "answers_per_second": count / seconds}


@contextmanager
def _played(home: Home, part: str, url: str, count: int, processes: int = 1) -> Iterator[None]:
    """Run processes, all at once, until they say that they are ready, and kill them in the end."""
    command = [sys.executable, "-m", "tests.bench.w3_work", part, url, home.url("other"), str(count)]
    with ExitStack() as players:
        running: list[subprocess.Popen[str]] = []
        for _ in range(processes):
            process = players.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            players.callback(process.kill)
            running.append(process)
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"a process for {part} ended early")
        yield


def _age(home: Home, url: str) -> None:
    """Let an hour pass for what lies there, members that are dead included."""
    with broker_of(url) as broker:
        broker.roles()[0].run_once()  # the tick by which the sweep tells their age
    home.execute(AGED.format(s=url.rpartition("=")[2]))


def _until_settled(home: Home, url: str, count: int, decision: int) -> float:
    """Start an engine, and return the seconds from its first round until none is undecided."""
    schema = url.rpartition("=")[2]
    with psycopg.connect(home.url(driver=None), autocommit=True) as poll, _engine(home, url) as begun:
        end = time.perf_counter() + 300
        while _one(poll, f"SELECT count(*) FROM {schema}.op") < count:
            if time.perf_counter() > end:
                raise RuntimeError("check-back did not settle them in five minutes")
            time.sleep(POLL)
        seconds = time.perf_counter() - begun[0]
        undecided = f"SELECT count(*) FROM {schema}.half h LEFT JOIN {schema}.op o USING (txid) WHERE o IS NULL"
        right = f"SELECT count(*) FROM {schema}.op WHERE decision = {decision} AND from_check"
        if _one(poll, undecided) or _one(poll, right) != count:
            raise RuntimeError("check-back left something, or decided wrongly")
    return seconds


def _one(connection: psycopg.Connection, sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _engine(home: Home, url: str) -> Iterator[list[float]]:
    """Run an engine process; the list gets the moment when its first round begins."""
    command = [sys.executable, "-m", "txsaga.cli", "--url", url, "engine"]
    env = {**os.environ, "TXSAGA_RESOURCE_OTHER": home.url("other")}
    begun: list[float] = []
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        reader = threading.Thread(target=_listen, args=(process.stderr, begun), daemon=True)
        reader.start()
        try:
            yield begun
        finally:
            process.terminate()
            process.wait(30)


def _listen(lines: IO[str], begun: list[float]) -> None:
    for line in lines:
        if BEGINS in line and not begun:
            begun.append(time.perf_counter())
        if os.environ.get("W3_SHOW"):
            sys.stderr.write(line)


def _idle(home: Home) -> Mapping[str, float]:
    """Time a round behind which everything is settled, and see that the next one writes nothing."""
    url = home.namespace()
    with broker_of(url) as broker:
        check_back = CheckBack(broker.kernel)
        _fill(home, broker, url.rpartition("=")[2])
        _age(home, url)
        started = time.perf_counter()
        done = check_back.run_once()
        seconds = time.perf_counter() - started
        quiet = [_quiet(home, check_back) for _ in range(QUIET)]  # the server's own housekeeping writes at times
    if done or not any(writers == 0 for _, writers in quiet):
        raise RuntimeError(f"a round with nothing to do did something: {done}, {quiet}")
    return {"txsaga": 1000 * seconds, "nothing_new_ms": 1000 * min(quiet)[0]}


def _quiet(home: Home, check_back: CheckBack) -> tuple[float, int]:
    """Return the seconds of a round with nothing new, and how many transactions wrote anything meanwhile."""
    with psycopg.connect(home.url(driver=None), autocommit=True) as connection:
        before = _one(connection, WRITERS)
        started = time.perf_counter()
        again = check_back.run_once()
        seconds = time.perf_counter() - started
        return seconds, again + _one(connection, WRITERS) - before


def _fill(home: Home, broker: Broker, schema: str) -> None:
    """Leave halves that are settled and given out."""
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    first = producer.prepare_now("orders", BODY)
    producer.commit(first)
    body = lay_out([Message("orders", BODY)]).hex()
    home.execute(FILL.format(s=schema, body=body, count=SETTLED, low=first.txid))
    while broker.roles()[0].run_once():
        pass
