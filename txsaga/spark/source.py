"""
The data source `txsaga`: DataFrames into half messages of a transaction, topics into DataFrames and streams.

    spark.dataSource.register(txsaga.spark.Messages)
    txsaga.spark.send(broker, tx, "orders", frame)                 # half until the transaction is decided
    txsaga.spark.read(broker, spark, "orders")                     # what is visible now
    txsaga.spark.read_stream(broker, spark, "orders")              # partitions are queues, offsets are exact

Every task attempt stores a contribution of its own; the sender of the frame names the winners (R4), or the driver does
if Spark runs elsewhere. A task that dies, or whose answer is lost, leaves half messages that no decision delivers.
Spark plans and commits in separate workers and imports this again: the store is imported only where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txsaga.errors import ColumnsDiffer, ConfigError, TypeDiffers

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "txsaga"
READ = "queue int, offset long, key string, tag string, body binary"
WRITTEN = {"body": ("binary", "string"), "key": ("string",), "tag": ("string",)}
ATTEMPTS = 1 << 20
"""Task attempts are numbered owner × this + a random number below it: competing attempts of a part differ."""


@dataclass
class Won(WriterCommitMessage):
    """The attempt of a part that completed."""

    part: int
    attempt: int
    count: int


@dataclass
class Queue(InputPartition):
    """Messages of one queue, from one offset up to another."""

    qid: int
    index: int
    start: int
    end: int


class Messages(DataSource):
    """Messages of a store, for Spark to read and write."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns that are read."""
        return READ

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer for rows of this schema."""
        if overwrite:
            raise ConfigError('messages are only added; write with mode("append")')
        require_written(schema)
        return Sink(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the visible messages."""
        return Reader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return a continuous reader."""
        return StreamReader(dict(self.options))


def require_written(schema: StructType) -> None:
    """Refuse rows that are not messages: Spark itself does not check."""
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "body" not in given or (other := sorted(given.keys() - WRITTEN.keys())):
        said = f"has {', '.join(map(repr, other))} too" if "body" in given else "lacks 'body'"
        raise ColumnsDiffer(f"a frame of messages has body and, if need be, key and tag; this one {said}")
    for name, kind in given.items():
        if kind not in WRITTEN[name]:
            raise TypeDiffers(f"column {name!r} of the messages is {kind}; cast it to {' or '.join(WRITTEN[name])}")


class Sink(DataSourceArrowWriter):
    """Stores the rows of each task as a contribution to an open transaction."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._topic = options["url"], options["topic"]
        self._txid, self._owner, self._base = (int(options[name]) for name in ("txid", "owner", "part"))
        self._won = options.get("won")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Won:
        """Store the rows of one task attempt as half messages."""
        from pyspark import TaskContext

        from txsaga.spark.stored import Contribution

        task = TaskContext.get()
        assert task is not None
        part, attempt = self._base + task.partitionId(), self._owner * ATTEMPTS + randbelow(ATTEMPTS)
        count = Contribution(self._txid, self._owner).store(self._url, self._topic, part, attempt, iterator)
        return Won(part, attempt, count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the winning attempts to the sender, or name them here if it can't be reached."""
        won = [(each.part, each.attempt) for each in messages if isinstance(each, Won) and each.count]
        if self._won is not None:
            Path(self._won).write_text(json.dumps(won), "utf-8")
            return
        from txsaga.spark.stored import Contribution, opened

        with opened(self._url) as store:
            Contribution(self._txid, self._owner).win(store.ledgers, won)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: an attempt that is not named does not count."""


class TopicReader:
    """Reads parts of a topic."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._topic, self._tag = options["url"], options["topic"], options.get("tag")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one queue."""
        from txsaga.spark.stored import batches

        assert isinstance(partition, Queue)
        return batches(self._url, partition.qid, partition.index, partition.start, partition.end, self._tag)

    def _bounds(self) -> dict[int, tuple[int, int]]:
        from txsaga.spark.stored import bounds

        return dict(sorted(bounds(self._url, self._topic).items()))


class Reader(TopicReader, DataSourceReader):
    """Reads the messages of a topic that are visible at the start."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the queues, each up to its present end."""
        return [Queue(qid, at, tail, head) for at, (qid, (tail, head)) in enumerate(self._bounds().items())]


class StreamReader(TopicReader, DataSourceStreamReader):
    """Reads a topic continuously: its offsets are those of the queues, so nothing is repeated or missed."""

    def initialOffset(self) -> dict[str, int]:  # Spark's name
        """Return the first offsets of the queues."""
        return {str(qid): tail for qid, (tail, _) in self._bounds().items()}

    def latestOffset(self) -> dict[str, int]:  # Spark's name
        """Return the ends of the queues."""
        return {str(qid): head for qid, (_, head) in self._bounds().items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the new messages of each queue."""
        found = [Queue(int(qid), at, start.get(qid, 0), end[qid]) for at, qid in enumerate(end)]
        return [each for each in found if each.start < each.end]
