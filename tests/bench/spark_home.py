"""A broker and a Spark session over one home database, for workloads that compare with Spark's own ways."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import txsaga
from tests.bench.home import Home
from txsaga.broker import Broker
from txsaga.core.facts import Fact
from txsaga.spark import session
from txsaga.spark.sessions import JARS, named_jars
from txsaga.wiring.connecting import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MADE = Path(__file__).parents[2] / ".jars"
MAKE = "make jars"


def has_jar(name: str) -> bool:
    """Say whether Spark gets a jar; what `make jars` fetched is taken where TXSAGA_SPARK_JARS names nothing."""
    if MADE.is_dir():
        os.environ.setdefault(JARS, str(MADE))
    return any(name in Path(jar).name for jar in named_jars(os.environ.get(JARS, "")))


class Clock:
    """Hears when a decision began and stood."""

    def __init__(self) -> None:
        self._begun = 0.0
        self.decisions: list[float] = []

    def __call__(self, fact: Fact) -> None:
        if fact.name == "Deciding":
            self._begun = time.perf_counter()
        elif fact.name == "Decided":
            self.decisions.append((time.perf_counter() - self._begun) * 1e3)


@contextmanager
def opened(home: Home) -> Iterator[tuple[Broker, Clock]]:
    """Open a broker on a fresh namespace; its clock hears every decision."""
    address, clock = home.server.url("bench", driver="psycopg"), Clock()  # Java knows no sockets of files
    url = f"{address}?namespace={home.namespace().rpartition('=')[2]}"
    open_store(url).close()
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"roles": False, "answering": False, "auto_create": True, "env": {}}
        with txsaga.connect(url, warehouse=Path(folder), observers=[clock], **options) as broker:
            yield broker, clock


@contextmanager
def spark_beside(broker: Broker) -> Iterator[SparkSession]:
    """Open a local session on two cores."""
    spark = session(broker, "local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
