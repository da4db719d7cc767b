"""W7: a frame as half messages, and a topic as a frame, against Spark's own JDBC writer and reader of the same rows.

Both sides take the same frame in the same session, in turns; the plain table has the columns of the messages, and its
writer and reader the settings that make them fast: batches, rewritten inserts, a fetch size, as many readers as the
topic has queues. Ours ends when the decision stands; `visible_ms` is the tick behind it. `server_ratio` is what the
server's processes work for us, tick included, over what they work for JDBC. It takes the JDBC driver.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from tests.bench.home import Home
from tests.bench.report import Row, absent, alternate
from tests.bench.spark_home import MAKE, Clock, has_jar, opened, spark_beside
from txsaga.broker import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.spark import read, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("TXSAGA_BENCH_ROWS", "1000000"))
PARTITIONS = 4
WORDS = (
    "id AS seq",
    "concat('account ', id % 9973) AS key",
    "cast(repeat(md5(cast(id AS string)), 4) AS binary) AS body",
)
TABLE = "CREATE TABLE plain (seq bigint NOT NULL, key text, body bytea NOT NULL)"


class Plain:
    """The plain table, as Spark's own JDBC reaches it."""

    def __init__(self, home: Home, readers: int) -> None:
        self._home, self._readers, self.server_s = home, readers, list[float]()
        url = make_url(home.server.url("bench", driver="psycopg"))
        self._options = {
            "url": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?reWriteBatchedInserts=true",
            "dbtable": "plain",
            "user": url.username or "",
            "password": url.password or "",
            "driver": "org.postgresql.Driver",
        }
        home.execute("DROP TABLE IF EXISTS plain")
        home.execute(TABLE)

    def write(self, frame: DataFrame) -> float:
        """Write a frame into the empty table."""
        self._home.execute("TRUNCATE plain")
        writer = frame.write.format("jdbc").mode("append").options(**self._options, batchsize=5000)
        return self._timed(writer.save)

    def read(self, spark: SparkSession) -> float:
        """Read all of it."""
        parts: dict[str, str | int] = {
            "partitionColumn": "seq",
            "lowerBound": 0,
            "upperBound": ROWS,
            "numPartitions": self._readers,
        }
        reader = spark.read.format("jdbc").options(**self._options, **parts, fetchsize=10_000)
        return self._timed(lambda: drained(reader.load()))

    def _timed(self, work: Callable[[], None]) -> float:
        begun, before = time.perf_counter(), self._home.server_seconds()
        work()
        wall = time.perf_counter() - begun
        self.server_s.append(self._home.server_seconds() - before)
        return wall


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    del seconds  # a frame at a time is the unit
    has_driver = has_jar("postgresql")
    with opened(home) as (broker, clock), spark_beside(broker) as spark:
        frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(*WORDS)
        ours = Ours(home, broker, clock, spark)
        ours.write("read", frame)
        plain = Plain(home, len(broker.kernel.store.registry.topic("read").qids)) if has_driver else None
        sink = _compared("sink", rounds, lambda: ours.write("written", frame), plain, lambda p: p.write(frame))
        source = _compared("source", rounds, lambda: ours.read("read"), plain, lambda p: p.read(spark))
    return [sink, source], [] if has_driver else [absent("the JDBC driver of PostgreSQL", MAKE)]


class Ours:
    """The same as messages."""

    def __init__(self, home: Home, broker: Broker, clock: Clock, spark: SparkSession) -> None:
        self._home, self._broker, self._clock, self._spark = home, broker, clock, spark
        self._producer = broker.producer("bank", checker=lambda question: None)

    def write(self, topic: str, frame: DataFrame) -> dict[str, float]:
        """Send a frame in one transaction; its tick counts as work of the server, not as time."""
        begun, before = time.perf_counter(), self._home.server_seconds()
        with self._producer.transaction() as tx:
            send(self._broker, tx, topic, frame.select("key", "body"))
        decided = time.perf_counter()
        while Dispatcher(self._broker.kernel).run_once():
            pass
        visible = time.perf_counter()
        return {
            "txsaga": decided - begun,
            "decision_ms": self._clock.decisions[-1],
            "visible_ms": 1e3 * (visible - decided),
            "server_s": self._home.server_seconds() - before,
        }

    def read(self, topic: str) -> dict[str, float]:
        """Read all that is visible."""
        begun, before = time.perf_counter(), self._home.server_seconds()
        drained(read(self._broker, self._spark, topic))
        return {"txsaga": time.perf_counter() - begun, "server_s": self._home.server_seconds() - before}


def drained(frame: DataFrame) -> None:
    """Read every column of every row, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _compared(
    case: str,
    rounds: int,
    ours: Callable[[], dict[str, float]],
    plain: Plain | None,
    theirs: Callable[[Plain], float],
) -> Row:
    ours()  # the first of each warms up
    if plain is None:
        return alternate(case, rounds, ours, {})
    theirs(plain)
    plain.server_s.clear()
    row = alternate(case, rounds, ours, {"jdbc": lambda: theirs(plain)})
    row.extra["server_ratio"] = [statistics.median(row.extra["server_s"]) / statistics.median(plain.server_s)]
    return row
