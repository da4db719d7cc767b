"""
The data source `txsaga`: DataFrames into half messages of a transaction, topics into DataFrames and streams.

    spark.dataSource.register(txsaga.spark.Messages)
    txsaga.spark.send(broker, tx, "orders", frame)                 # half until the transaction is decided
    txsaga.spark.read(broker, spark, "orders")                     # what is visible now
    txsaga.spark.read_stream(broker, spark, "orders")              # partitions are queues, offsets are exact

Every task attempt stores a contribution of its own; the driver names those that won (R4). A task that dies, or whose
answer is lost, leaves half messages that no decision delivers. Sink and driver run in processes of their own: all they
share is the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import randbelow

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txsaga.adapters.postgres.store import PostgresStore
from txsaga.engine.announce import Announcer
from txsaga.engine.topics import Topics
from txsaga.errors import Superseded, TransactionClosed, UnknownTransaction
from txsaga.errors.lake import ColumnsDiffer, ModeRefused, TypeDiffers
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Life, Row
from txsaga.model.topic import Way
from txsaga.ports.ledger import Ledger
from txsaga.spark import arrow
from txsaga.spark.laying import Laying, together

FORMAT = "txsaga"
READ = "queue int, offset long, key string, tag string, body binary"
WRITTEN = {"body": ("binary", "string"), "key": ("string",), "tag": ("string",)}
ATTEMPTS = 1 << 20
"""An attempt of a task is this owner's, and has a number drawn among so many: rivals of one part differ."""
ENTRIES = 64
"""Chunks that are read at a time."""


@dataclass
class Won(WriterCommitMessage):
    """The attempt of a part that came to its end."""

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
    """Messages of a store, as Spark reads and writes them."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return what is read."""
        return READ

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes rows of this schema."""
        if overwrite:
            raise ModeRefused('messages are only added; write with mode("append")')
        require_written(schema)
        return Sink(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads what is visible."""
        return Reader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return what reads on and on."""
        return StreamReader(dict(self.options))


def require_written(schema: StructType) -> None:
    """Refuse rows that are no messages: Spark itself does not look."""
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
        """Store the rows of one task attempt, half."""
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        part, attempt, count = self._base + task.partitionId(), self._owner * ATTEMPTS + randbelow(ATTEMPTS), 0
        store = PostgresStore.open(self._url)
        try:
            topics = Topics(store.registry, Announcer())
            laying = Laying(topics.admit_many(self._topic, Way.HALF), topics.turn)
            for rows in map(laying.rows, together(iterator)):
                self._store(store, part, attempt, rows)
                count += sum(row.count for row in rows)
        finally:
            store.close()
        return Won(part, attempt, count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Name the attempts that won, or tell a flow of them; the transaction is still to be decided."""
        won = [each for each in messages if isinstance(each, Won) and each.count]
        if self._won is not None:  # they count when its step is done, which this process can't know
            Path(self._won).write_text(json.dumps([[each.part, each.attempt] for each in won]), "utf-8")
            return
        store = PostgresStore.open(self._url)
        try:
            with store.ledgers.open() as ledger:
                self._hold(ledger)
                for each in won:
                    ledger.win(self._txid, each.part, each.attempt)
        finally:
            store.close()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave it: an attempt that nobody named does not count."""

    def _store(self, store: PostgresStore, part: int, attempt: int, rows: Sequence[Row]) -> None:
        with store.ledgers.open() as ledger:
            life = self._hold(ledger)
            ledger.add(replace(life, owner=attempt), part, rows)

    def _hold(self, ledger: Ledger) -> Life:
        life = ledger.share(self._txid)
        if life is None:
            raise UnknownTransaction(f"transaction {self._txid} is not in this store")
        if life.owner != self._owner:
            raise Superseded(self._txid)
        if life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {self._txid} is closed; nothing can be added any more")
        return life


class Reader(DataSourceReader):
    """Reads what is visible of a topic when it begins."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._topic, self._tag = options["url"], options["topic"], options.get("tag")

    def partitions(self) -> Sequence[InputPartition]:
        """Return the queues, each as far as it goes now."""
        store = PostgresStore.open(self._url)
        try:
            qids = store.registry.topic(self._topic).qids
            bounds = store.log.bounds(qids)
            return [Queue(qid, at, bounds[qid].tail, bounds[qid].head) for at, qid in enumerate(qids)]
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one queue."""
        assert isinstance(partition, Queue)
        yield from batches(self._url, partition, self._tag)


class StreamReader(DataSourceStreamReader):
    """Reads a topic on and on: its offsets are those of the queues, so nothing comes twice and nothing is missed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._topic, self._tag = options["url"], options["topic"], options.get("tag")
        self._most = int(options.get("max", 1_000_000))
        self._qids: tuple[int, ...] = ()

    def initialOffset(self) -> dict[str, int]:  # Spark's name
        """Return where the queues begin."""
        return self._bounds("tail")

    def latestOffset(self) -> dict[str, int]:  # Spark's name
        """Return how far the queues go."""
        return self._bounds("head")

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return what came in each queue."""
        found = [Queue(int(qid), at, start.get(qid, 0), end[qid]) for at, qid in enumerate(end)]
        return [each for each in found if each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one queue."""
        assert isinstance(partition, Queue)
        yield from batches(self._url, partition, self._tag)

    def _bounds(self, edge: str) -> dict[str, int]:
        store = PostgresStore.open(self._url)
        try:
            qids = store.registry.topic(self._topic).qids
            return {str(qid): getattr(bounds, edge) for qid, bounds in sorted(store.log.bounds(qids).items())}
        finally:
            store.close()


def batches(url: str, queue: Queue, tag: str | None) -> Iterator[pa.RecordBatch]:
    """Yield messages of a queue as Arrow batches, many chunks in each."""
    store, at = PostgresStore.open(url), queue.start
    try:
        while at < queue.end:
            entries = store.log.fetch(queue.qid, at, ENTRIES, queue.end)
            for found in arrow.batches(entries, queue.index, at, queue.end):
                yield found if tag is None else found.filter(pa.compute.equal(found.column("tag"), tag))
            if not entries:
                return
            at = min(queue.end, entries[-1].behind)
    finally:
        store.close()
