"""W4: three tables staged by Spark and published together, against three plain Spark appends to tables like them.

Both sides write the same frame in the same session, in turns. `publish_ms` is from the end of staging until the
transaction is over, `decision_ms` the part of it that is the decision; `cpu_overhead` is what this process and the JVM
work for us over what they work for plain appends; `torn` counts cuts that saw a part of a decision, by a reader that
polls meanwhile. `1000 files` publishes as many files for each of three tables, against one file each. `1000 commits` is
one small append after the other to one table: the last ones against the first. It takes the Iceberg runtime; without it
plain appends are left out.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.bench.home import Home
from tests.bench.report import Row, absent, alternate
from tests.bench.spark_home import MAKE, Clock, has_jar, opened, spark_beside
from txsaga.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("TXSAGA_BENCH_ROWS", "1000000"))
COMMITS = int(os.environ.get("TXSAGA_BENCH_COMMITS", "1000"))
TABLES = ("bank.ledger", "bank.posting", "bank.balance")
COLUMNS = {"id": "long", "account": "long", "cents": "long", "note": "string"}
FILES = 1000
EDGE = 20
"""Commits at either end that are compared."""


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    skipped = [] if has_jar("iceberg-spark-runtime") else [absent("the Iceberg runtime of plain-append", MAKE)]
    with opened(home) as (broker, clock), spark_beside(broker) as spark:
        three = _three_tables(broker, clock, spark, rounds, plain=not skipped)
        files = _many_files(broker, clock, spark, rounds)
    with opened(home) as (broker, clock):
        thousand = _many_commits(broker, clock)
    return [three, files, thousand], skipped


def _three_tables(broker: Broker, clock: Clock, spark: SparkSession, rounds: int, *, plain: bool) -> Row:
    catalog = broker.kernel.tables.name(TABLES[0]).catalog
    with broker.producer("bank", checker=lambda question: None).transaction() as tx:
        for name in TABLES:
            tx.table(name).create(COLUMNS)
            tx.table(f"{name}_plain").create(COLUMNS)
    words = ("id", "id % 1000 AS account", "id * 7 % 10007 AS cents", "concat('note ', id % 97) AS note")
    frame: DataFrame = spark.range(ROWS).selectExpr(*words)
    torn = _Torn(broker)

    def ours() -> dict[str, float]:
        begun, cpu = time.perf_counter(), _cpu(spark)
        with torn:
            figures = _published(broker, clock, frame)
        return {"txsaga": time.perf_counter() - begun, "cpu_s": _cpu(spark) - cpu, "torn": torn.seen, **figures}

    plain_cpu: list[float] = []

    def theirs() -> float:
        begun, cpu = time.perf_counter(), _cpu(spark)
        for name in TABLES:
            frame.writeTo(f"{catalog}.{name}_plain").append()
        plain_cpu.append(_cpu(spark) - cpu)
        return time.perf_counter() - begun

    if plain:
        theirs()
    ours()  # the first of each warms up
    plain_cpu.clear()
    row = alternate("3 tables", rounds, ours, {"plain-append": theirs} if plain else {})
    if plain:
        row.extra["overhead"] = [statistics.median(row.ours) / statistics.median(row.baselines["plain-append"])]
        row.extra["cpu_overhead"] = [statistics.median(row.extra["cpu_s"]) / statistics.median(plain_cpu)]
    return row


def _published(broker: Broker, clock: Clock, frame: DataFrame) -> dict[str, float]:
    """Publish a frame in three tables with a message; return what followed the staging, in milliseconds."""
    with broker.producer("bank", checker=lambda question: None).transaction() as tx:
        for name in TABLES:
            tx.table(name).append(frame)
        tx.send("booked", b"1")
        staged = time.perf_counter()
    return {"publish_ms": 1e3 * (time.perf_counter() - staged), "decision_ms": clock.decisions[-1]}


def _many_files(broker: Broker, clock: Clock, spark: SparkSession, rounds: int) -> Row:
    """Publish as many files as there are commits, and one, in turns."""
    frame = spark.range(FILES).selectExpr("id", "id AS account", "id AS cents", "'note' AS note")
    row, one = Row(f"{FILES} files"), list[float]()
    for _ in range(rounds):
        figures = _published(broker, clock, frame.repartition(FILES))
        one.append(_published(broker, clock, frame.coalesce(1))["publish_ms"])
        row.add({"txsaga": figures["publish_ms"] / 1e3, **figures})
    row.extra["one_file_ms"] = one
    row.extra["over_one_file"] = [statistics.median(row.extra["publish_ms"]) / statistics.median(one)]
    return row


class _Torn:
    """A reader that polls while somebody writes, and counts what it sees of a part of a decision."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self.seen = broker, 0

    def __enter__(self) -> None:
        self._over = Event()
        self._thread = Thread(target=self._poll)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.wait(0.2):
            with self._broker.cut(tables=TABLES) as cut:
                ids = [cut.snapshot(name) for name in TABLES]
                told = sum(cut.heads.get("booked", ()))
            commits = {told} | {_commits(self._broker, cut.tables[name]) for name in TABLES}
            self.seen += len(commits) > 1 or (any(ids) and not all(ids))


def _commits(broker: Broker, location: str) -> int:
    return len(broker.kernel.tables.scan(location, {}).table_metadata.snapshots)


def _many_commits(broker: Broker, clock: Clock) -> Row:
    producer = broker.producer("bank", checker=lambda question: None)
    rows = pa.table({"id": [1], "account": [1], "cents": [1], "note": ["a"]})
    with producer.transaction() as tx:
        tx.table(TABLES[0]).create(COLUMNS)
    clock.decisions.clear()
    for _ in range(COMMITS):
        with producer.transaction() as tx:
            tx.table(TABLES[0]).append(rows)
    first, last = (statistics.median(part) for part in (clock.decisions[:EDGE], clock.decisions[-EDGE:]))
    row = Row(f"{COMMITS} commits")
    row.add({"txsaga": last / 1e3, "publish_ms": last, "first_ms": first, "last_over_first": last / first})
    return row


def _cpu(spark: SparkSession) -> float:
    """Return the CPU seconds of this process and of the JVM."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    gateway: Any = spark.sparkContext._gateway
    fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    return own.ru_utime + own.ru_stime + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
