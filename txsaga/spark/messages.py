"""
Messages to and from DataFrames, within transactions.

What is sent stays hidden until the transaction is decided: its rows are one more contribution, with its own part.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from txsaga.core import facts
from txsaga.core.records import FRAMES
from txsaga.core.topic import SendKind
from txsaga.core.validation import validate_key
from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.flows.flow import Flow
from txsaga.spark.source import FORMAT, Messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txsaga.broker import Broker
    from txsaga.messages.producer import Producer
    from txsaga.messages.transaction import Transaction


_sent: WeakKeyDictionary[object, count[int]] = WeakKeyDictionary()


def send(broker: Broker, transaction: Transaction | Flow, topic: str, frame: DataFrame) -> None:
    """Send the rows of a frame (body, optionally key and tag) as messages of an open transaction or flow."""
    life = transaction.join_life()
    broker.kernel.topics.admit_many(topic, SendKind.HALF)
    frame.sparkSession.dataSource.register(Messages)
    options: dict[str, str | int] = {
        "url": broker.kernel.tables.home_url(),
        "topic": topic,
        "txid": life.txid,
        "owner": life.owner,
    }
    if isinstance(transaction, Flow):
        if _is_elsewhere(frame):
            raise ConfigError(
                "a step of a flow can't learn through Spark Connect which messages count; open its session with a "
                "master instead, or send the frame in a separate transaction"
            )
        step = transaction.frames()
        for part, attempt in _stored(frame, {**options, "part": step.next_frame()}):
            step.frame_won(part, attempt)  # they count once the step is done
        return
    options["part"] = next(_sent.setdefault(transaction, count(1))) * FRAMES
    if _is_elsewhere(frame):  # its driver can't report back to us
        frame.write.format(FORMAT).mode("append").options(**options).save()
        return
    from txsaga.spark.stored import Contribution

    won = _stored(frame, options)
    with broker.kernel.announce.around(facts.Adding, life.txid, about=topic):
        Contribution(life.txid, life.owner).win(broker.kernel.store.ledgers, won)


def _stored(frame: DataFrame, options: Mapping[str, str | int]) -> Sequence[tuple[int, int]]:
    """Store a frame; return the winning attempts of its parts."""
    with TemporaryDirectory(prefix="txsaga-frame-") as folder:
        won = Path(folder) / "won.json"
        frame.write.format(FORMAT).mode("append").options(**options, won=str(won)).save()
        return [(part, attempt) for part, attempt in json.loads(won.read_text("utf-8"))]


def _is_elsewhere(frame: DataFrame) -> bool:
    """Return whether the driver may be on another machine, as with Connect."""
    return type(frame).__module__.startswith("pyspark.sql.connect.")


def read(broker: Broker, spark: SparkSession, topic: str, *, tag: str | None = None) -> DataFrame:
    """Return the visible messages of a topic: queue, offset, key, tag and body."""
    spark.dataSource.register(Messages)
    return spark.read.format(FORMAT).options(**_options(broker, topic, tag)).load()


def read_stream(broker: Broker, spark: SparkSession, topic: str, *, tag: str | None = None) -> DataFrame:
    """Return a topic as a stream."""
    spark.dataSource.register(Messages)
    return spark.readStream.format(FORMAT).options(**_options(broker, topic, tag)).load()


def _options(broker: Broker, topic: str, tag: str | None) -> dict[str, str]:
    options = {"url": broker.kernel.tables.home_url(), "topic": topic}
    return options if tag is None else {**options, "tag": tag}


logger = logging.getLogger("txsaga")


def each_batch(
    producer: Producer, query: str, write: Callable[[Transaction, DataFrame], object]
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each batch once, in a transaction with key `query/number`."""
    validate_key(query)

    def batch(frame: DataFrame, number: int) -> None:
        try:
            with producer.transaction(key=f"{query}/{number}") as transaction:
                write(transaction, frame)
        except AlreadyCommitted:
            logger.info("batch %d of %s is already committed; it is skipped", number, query)

    return batch
