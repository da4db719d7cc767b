"""
Messages and DataFrames, in the words of a transaction.

What is sent is half until the transaction is decided: its rows are one more contribution, under a part of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from txsaga.engine.flows.flow import Flow
from txsaga.model.records import FRAMES
from txsaga.model.topic import Way
from txsaga.spark.source import FORMAT, Messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txsaga.engine.broker import Broker
    from txsaga.engine.flows.tables import FlowTables
    from txsaga.model.records import Life

_sent: WeakKeyDictionary[object, count[int]] = WeakKeyDictionary()


class Open(Protocol):
    """An open transaction."""

    def join_life(self) -> Life:
        """Return its row."""


def send(broker: Broker, transaction: Open, topic: str, frame: DataFrame) -> None:
    """Send the rows of a frame (body, and key and tag if need be) as messages of an open transaction, or flow."""
    life = transaction.join_life()
    broker.kernel.topics.admit_many(topic, Way.HALF)
    frame.sparkSession.dataSource.register(Messages)
    options: dict[str, str | int] = {
        "url": broker.kernel.tables.home_url(),
        "topic": topic,
        "txid": life.txid,
        "owner": life.owner,
    }
    if isinstance(transaction, Flow):
        _send_in_step(transaction.frames(), frame, options)
        return
    number = next(_sent.setdefault(transaction, count(1)))
    frame.write.format(FORMAT).mode("append").options(**options, part=number * FRAMES).save()


def _send_in_step(step: FlowTables, frame: DataFrame, options: Mapping[str, str | int]) -> None:
    """Store a frame, and let its rows count when the step is done."""
    with TemporaryDirectory(prefix="txsaga-frame-") as folder:
        won = Path(folder) / "won.json"
        writer = frame.write.format(FORMAT).mode("append").options(**options, part=step.next_frame(), won=str(won))
        writer.save()
        for part, attempt in json.loads(won.read_text("utf-8")):
            step.frame_won(part, attempt)


def read(broker: Broker, spark: SparkSession, topic: str, *, tag: str | None = None) -> DataFrame:
    """Return what is visible of a topic: queue, offset, key, tag and body."""
    spark.dataSource.register(Messages)
    return spark.read.format(FORMAT).options(**_options(broker, topic, tag)).load()


def read_stream(broker: Broker, spark: SparkSession, topic: str, *, tag: str | None = None) -> DataFrame:
    """Return a topic as a stream."""
    spark.dataSource.register(Messages)
    return spark.readStream.format(FORMAT).options(**_options(broker, topic, tag)).load()


def _options(broker: Broker, topic: str, tag: str | None) -> dict[str, str]:
    options = {"url": broker.kernel.tables.home_url(), "topic": topic}
    return options if tag is None else {**options, "tag": tag}
