"""
The data source's access to the store: rows of a task attempt, winning attempts, the messages of a queue.

Each Spark task opens the store by itself. If the winners were never named, everything stored would stay hidden and be
rolled back with its transaction. Arrow batches are stored as chunks: rows are distributed over the queues of a topic
and copied in bulk, not one by one. The layout is that of `Outbox.add_many` for lists. If it differed, a consumer would
read other messages than the DataFrame has, or find one key in two queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txsaga.core import chunk
from txsaga.core.announcer import Announcer
from txsaga.core.chunk import Chunk
from txsaga.core.layout import decoded
from txsaga.core.lifecycle import TxState
from txsaga.core.records import LogEntry, Row, TxRecord
from txsaga.core.topic import SendKind, Topic
from txsaga.core.validation import validate_sizes
from txsaga.errors import ChunkDamaged, InvalidMessage, Superseded, TransactionClosed, UnknownTransaction
from txsaga.messages.topics import Topics
from txsaga.store.store import Store

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger, Ledgers


FLUSH = 8 * 1024 * 1024
"""Bytes that are laid out and stored in one step."""
KNOWN = 1 << 16
"""The number of keys whose queue is cached."""
COLUMNS = {"body": chunk.BODY, "key": chunk.KEY, "tag": chunk.TAG}


class RowLayout:
    """Lays out the rows of one task attempt."""

    def __init__(self, topic: Topic, turn: Callable[[], int]) -> None:
        self._topic, self._turn, self._chunks = topic, turn, dict[int, int]()
        self._queue_of = lru_cache(KNOWN)(lambda key: topic.queue_for(key.decode(), 0))

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        """Lay out a batch."""
        binary = _checked(batch)
        return [self._row(qid, piece) for qid, piece in self._spread(binary)]

    def _row(self, qid: int, piece: pa.RecordBatch) -> Row:
        number = self._chunks.get(qid, 0)
        self._chunks[qid] = number + 1
        columns = {COLUMNS[name]: _raw(piece.column(name)) for name in piece.schema.names}
        return Row(qid, number, piece.num_rows, chunk.encode_raw(piece.num_rows, columns))

    def _spread(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Assign rows to queues: by key, or each chunk in turn."""
        if "key" not in batch.schema.names:
            yield from ((self._topic.queue_for(None, self._turn()), piece) for piece in _cut(batch))
            return
        keys = batch.column("key").dictionary_encode()
        queues = pa.array(map(self._queue_of, keys.dictionary.to_pylist()), pa.int64())
        found = queues.take(keys.indices)
        ordered, at = batch.take(pc.array_sort_indices(found)), 0  # stable: it keeps the order of equal values
        for each in sorted(pc.value_counts(found).to_pylist(), key=lambda count: count["values"]):
            yield from ((each["values"], piece) for piece in _cut(ordered.slice(at, each["counts"])))
            at += each["counts"]


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a size to store in one step: small ones joined, big ones cut."""
    held, size = list[pa.RecordBatch](), 0
    for batch in batches:
        rows = max(1, min(batch.num_rows, FLUSH * batch.num_rows // max(1, batch.nbytes)))
        for piece in (batch.slice(at, rows) for at in range(0, batch.num_rows, rows)):
            if held and size + piece.nbytes > FLUSH:
                yield pa.concat_batches(held)
                held, size = [], 0
            held.append(piece)
            size += piece.nbytes
    if held:
        yield pa.concat_batches(held)


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Refuse invalid messages; return the columns as bytes."""
    longest = dict.fromkeys(COLUMNS, 0)
    found = {}
    for name in batch.schema.names:
        column = batch.column(name).cast(pa.binary())
        if column.null_count:
            missing = "have no body; leave those rows out" if name == "body" else f"have no {name}; fill that column"
            raise InvalidMessage(f"{column.null_count} messages {missing}")
        longest[name] = pc.max(pc.binary_length(column)).as_py() or 0
        found[name] = column
    validate_sizes(**longest)
    return pa.RecordBatch.from_pydict(found)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut rows of one queue into pieces that fit into a chunk."""
    sizes = [0] * batch.num_rows
    if batch.nbytes > chunk.MAX_BYTES:
        lengths = [pc.binary_length(column).to_pylist() for column in batch.columns]
        sizes = [sum(row) for row in zip(*lengths, strict=True)]
    yield from (batch.slice(piece.start, len(piece)) for piece in chunk.pieces(sizes))


def _raw(column: pa.Array) -> tuple[bytes, bytes]:
    """Return offsets from 0, and the concatenated bytes."""
    count = len(column) + 1
    _, offsets, data = column.buffers()
    found = pa.Array.from_buffers(pa.int32(), count, [None, offsets], offset=column.offset)
    first, last = found[0].as_py(), found[count - 1].as_py()
    moved = pc.subtract(found, pa.scalar(first, pa.int32())).buffers()[1]
    return moved.to_pybytes()[: 4 * count], b"" if data is None else data.slice(first, last - first).to_pybytes()


MOST = 8 * 1024 * 1024
"""Bytes of stored chunks that are joined."""
ARROW_COLUMNS = (("key", chunk.KEY, pa.string()), ("tag", chunk.TAG, pa.string()), ("body", chunk.BODY, pa.binary()))
OFFSETS = [("queue", pa.int32()), ("offset", pa.int64())]
SCHEMA = pa.schema([*OFFSETS, *((name, kind) for name, _, kind in ARROW_COLUMNS)])


def arrow_batches(entries: Sequence[LogEntry], queue: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages in chunks of one queue, from one offset up to another."""
    held, together = 0, list[pa.RecordBatch]()
    for entry in entries:
        together.append(_batch(entry, queue, max(start, entry.base), min(end, entry.behind)))
        held += len(entry.body)
        if held > MOST:
            yield pa.concat_batches(together)
            held, together = 0, []
    if together:
        yield pa.concat_batches(together)


def _batch(entry: LogEntry, queue: int, start: int, end: int) -> pa.RecordBatch:
    read, count = _decoded(entry, queue), end - start
    columns = [pa.repeat(pa.scalar(queue, pa.int32()), count), pa.array(range(start, end), pa.int64())]
    columns += [_column(read, at, kind, start - entry.base, count) for _, at, kind in ARROW_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _decoded(entry: LogEntry, queue: int) -> Chunk:
    try:
        return decoded(entry.body, entry.count)[0]
    except ChunkDamaged as damage:
        where = f"queue {queue}, offsets {entry.base} to {entry.behind - 1}"
        advice = "or read the topic by a work group, which buries it (`txsaga consume`)"
        raise ChunkDamaged(f"{where}: {damage}, {advice}") from damage


def _column(read: Chunk, at: int, kind: pa.DataType, first: int, count: int) -> pa.Array:
    raw = read.raw(at)
    if raw is None:
        return pa.nulls(count, kind)
    buffers = [None if piece is None else pa.py_buffer(piece) for piece in raw]
    return pa.Array.from_buffers(kind, read.count, buffers).slice(first, count)


ENTRIES = 64
"""The number of chunks that are read at a time."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Messages of a frame in an open transaction: its number, and its owner when the frame was sent."""

    txid: int
    owner: int

    def store(self, url: str, topic: str, part: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Store the rows of one task attempt as half messages; return how many."""
        count = 0
        with opened(url) as store:
            topics = Topics(store.registry, Announcer())
            laying = RowLayout(topics.admit_many(topic, SendKind.HALF), topics.turn)
            for rows in map(laying.rows, together(batches)):
                self._add(store.ledgers, part, attempt, rows)
                count += sum(row.count for row in rows)
        return count

    def win(self, ledgers: Ledgers, won: Iterable[tuple[int, int]]) -> None:
        """Name the winning attempts; the transaction is still undecided."""
        with ledgers.open() as ledger:
            self._hold(ledger)
            for part, attempt in won:
                ledger.win(self.txid, part, attempt)

    def _add(self, ledgers: Ledgers, part: int, attempt: int, rows: Sequence[Row]) -> None:
        with ledgers.open() as ledger:
            ledger.add(replace(self._hold(ledger), owner=attempt), part, rows)

    def _hold(self, ledger: Ledger) -> TxRecord:
        life = ledger.share(self.txid)
        if life is None:
            raise UnknownTransaction(f"transaction {self.txid} is not in this store")
        if life.owner != self.owner:
            raise Superseded(self.txid)
        if life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {self.txid} is sealed; nothing can be added any more")
        return life


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open the store within a block."""
    store = Store.open(url)
    try:
        yield store
    finally:
        store.close()


def bounds(url: str, topic: str) -> Mapping[int, tuple[int, int]]:
    """Return the queues of a topic, each with its first offset and the one after its last."""
    with opened(url) as store:
        qids = store.registry.topic(topic).qids
        found = store.log.bounds(qids)
        return {qid: (found[qid].tail, found[qid].head) for qid in qids}


def batches(url: str, qid: int, index: int, start: int, end: int, tag: str | None) -> Iterator[pa.RecordBatch]:
    """Yield messages of a queue as Arrow batches, many chunks in each."""
    with opened(url) as store:
        at = start
        while at < end:
            entries: Sequence[LogEntry] = store.log.fetch(qid, at, ENTRIES, end)
            for found in arrow_batches(entries, index, at, end):
                yield found if tag is None else found.filter(pc.equal(found.column("tag"), tag))
            if not entries:
                return
            at = min(end, entries[-1].behind)
