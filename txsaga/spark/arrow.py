"""
Stored chunks as Arrow batches: the bytes of a chunk are the columns of a batch, nothing is copied.

What no consumer can read is not read here either.

Chunks are small and every batch costs Spark a step, so many of them are put together. If this were wrong, a DataFrame
would show other messages than a consumer reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from txsaga.errors import ChunkDamaged
from txsaga.model import chunk
from txsaga.model.chunk import Chunk
from txsaga.model.layout import decoded
from txsaga.model.records import LogEntry

MOST = 8 * 1024 * 1024
"""Bytes of stored chunks that are put together."""
COLUMNS = (("key", chunk.KEY, pa.string()), ("tag", chunk.TAG, pa.string()), ("body", chunk.BODY, pa.binary()))
SCHEMA = pa.schema([("queue", pa.int32()), ("offset", pa.int64()), *((name, kind) for name, _, kind in COLUMNS)])


def batches(entries: Sequence[LogEntry], queue: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages of chunks of one queue, from one offset up to another."""
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
    columns += [_column(read, at, kind, start - entry.base, count) for _, at, kind in COLUMNS]
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
