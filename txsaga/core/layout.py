"""
Between messages and chunks: columns out of messages, messages out of columns.

A chunk is decoded as a whole before any of it is delivered: if its third message were damaged, its first two would else
be delivered again and again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import repeat

from txsaga.core import chunk
from txsaga.core.chunk import Chunk, Column, written_wrong
from txsaga.core.identity import HalfId, StoreId
from txsaga.core.message import Delivered, Message
from txsaga.core.records import LogEntry
from txsaga.errors import ChunkDamaged

Texts = Sequence[str | None] | None
NO_HEADERS: Mapping[str, str] = {}
NOT_DECODED = (ValueError, RecursionError)
"""Raised by texts that are not UTF-8, and by headers that are not JSON or are nested too deeply."""


def lay_out_columns(
    bodies: Sequence[bytes],
    *,
    key: Texts = None,
    tag: Texts = None,
    headers: Sequence[Mapping[str, str] | None] | None = None,
    ordering_key: Texts = None,
    persistent: Sequence[bool] | None = None,
    unique_key: Texts = None,
) -> bytes:
    """Lay out a chunk from columns of Python values."""
    columns: list[Column] = [None] * len(chunk.COLUMNS)
    columns[chunk.BODY] = bodies
    columns[chunk.KEY] = _texts(key)
    columns[chunk.TAG] = _texts(tag)
    columns[chunk.ORDERING_KEY] = _texts(ordering_key)
    columns[chunk.UNIQUE_KEY] = _texts(unique_key)
    if headers is not None:
        columns[chunk.HEADERS] = [_json(value) if value else None for value in headers]
    if persistent is not None:
        columns[chunk.PERSISTENT] = [None if value else b"\0" for value in persistent]
    return chunk.encode(columns)


def lay_out(messages: Sequence[Message]) -> bytes:
    """Lay out a chunk from messages of one queue."""
    return lay_out_columns(
        [m.body for m in messages],
        key=[m.key for m in messages],
        tag=[m.tag for m in messages],
        headers=[m.headers for m in messages],
        ordering_key=[m.ordering_key for m in messages],
        persistent=[m.persistent for m in messages],
        unique_key=[m.unique_key for m in messages],
    )


def lay_out_one(message: Message) -> bytes:
    """Lay out a chunk of one message."""
    return chunk.encode_one(
        (
            message.body,
            None if message.key is None else message.key.encode(),
            None if message.tag is None else message.tag.encode(),
            _json(message.headers) if message.headers else None,
            None if message.ordering_key is None else message.ordering_key.encode(),
            None,
            None if message.persistent else b"\0",
            None if message.unique_key is None else message.unique_key.encode(),
        )
    )


def unpack(topic: str, stored: bytes) -> Iterator[Message]:
    """Read the messages of a chunk as they were sent."""
    read, heads = decoded(stored)
    columns = [read.column(at) or [None] * read.count for at in range(len(chunk.COLUMNS))]
    for record, headers in zip(zip(*columns, strict=True), heads or [NO_HEADERS] * read.count, strict=True):
        yield Message(
            topic,
            record[chunk.BODY] or b"",
            key=_text(record[chunk.KEY]),
            tag=_text(record[chunk.TAG]),
            headers=headers,
            ordering_key=_text(record[chunk.ORDERING_KEY]),
            persistent=record[chunk.PERSISTENT] is None,
            unique_key=_text(record[chunk.UNIQUE_KEY]),
        )


def weight(message: Message) -> int:
    """Return how many bytes a message holds."""
    texts = (message.key, message.tag, message.ordering_key, message.unique_key)
    held = len(message.body) + sum(len(text.encode()) for text in texts if text is not None)
    return held + len(_json(message.headers)) if message.headers else held


def lone(entry: LogEntry, *, topic: str, queue: int, qid: int, store: StoreId) -> Delivered:
    """Read the message of a chunk that holds no other."""
    body, key, tag, heads, ordering_key, _, persistent, unique_key = chunk.only_record(entry.body)
    assert body is not None
    try:
        return Delivered(
            topic,
            queue,
            entry.base,
            body,
            None if key is None else key.decode(),
            None if tag is None else tag.decode(),
            NO_HEADERS if heads is None else _headers(heads),
            None if ordering_key is None else ordering_key.decode(),
            persistent is None,
            None if unique_key is None else unique_key.decode(),
            entry.born,
            HalfId(store, entry.txid, entry.part, entry.attempt, qid, entry.chunk, 0),
            0,
        )
    except NOT_DECODED as reason:
        raise _not_decoded(reason) from None


def decoded(stored: bytes, count: int | None = None) -> tuple[Chunk, Sequence[Mapping[str, str]] | None]:
    """Return a chunk, of `count` messages if given, with its headers; `ChunkDamaged` unless every value decodes."""
    read = Chunk(stored)
    if count is not None and read.count != count:
        raise written_wrong(f"it holds {read.count} messages, and its place is for {count}")
    read.require_texts()
    heads = read.column(chunk.HEADERS)
    try:
        return read, None if heads is None else [NO_HEADERS if value is None else _headers(value) for value in heads]
    except NOT_DECODED as reason:
        raise _not_decoded(reason) from None


class Batch:
    """One chunk of the log as a reader gets it: columns first, messages on demand.

    `chunk` holds the stored columns, records before `offset` included.
    """

    __slots__ = ("_heads", "_skip", "_stop", "chunk", "entry", "qid", "queue", "store", "topic")

    def __init__(
        self, entry: LogEntry, *, topic: str, queue: int, qid: int, store: StoreId, start: int, end: int | None = None
    ) -> None:
        self.entry, self.topic, self.queue, self.qid = entry, topic, queue, qid
        self.store = store
        self.chunk, self._heads = decoded(entry.body, entry.count)
        self._skip = max(0, start - entry.base)
        self._stop = entry.count if end is None else min(entry.count, end - entry.base)

    def part(self, start: int, end: int) -> Batch:
        """Return the records of the same chunk between two offsets; the chunk is not verified again."""
        part = copy(self)
        part._skip, part._stop = max(0, start - self.entry.base), min(self.entry.count, end - self.entry.base)
        return part

    def __len__(self) -> int:
        return self._stop - self._skip

    @property
    def offset(self) -> int:
        """The offset of the first record."""
        return self.entry.base + self._skip

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.entry.base + self._stop

    @property
    def bodies(self) -> Sequence[bytes]:
        """The bodies, in order."""
        return [value for value in self._read(chunk.BODY) or () if value is not None]

    def texts(self, column: int) -> Sequence[str | None]:
        """Read a text column."""
        values = self._read(column)
        return [None] * len(self) if values is None else [_text(value) for value in values]

    @property
    def keys(self) -> Sequence[str | None]:
        """The keys, in order."""
        return self.texts(chunk.KEY)

    @property
    def tags(self) -> Sequence[str | None]:
        """The tags, in order."""
        return self.texts(chunk.TAG)

    def messages(self) -> Iterator[Delivered]:
        """Read the records as messages."""
        entry, count = self.entry, len(self)
        heads, persistent = self._heads, self._read(chunk.PERSISTENT)
        headers = repeat(NO_HEADERS, count) if heads is None else heads[self._skip : self._stop]
        flags = repeat(True, count) if persistent is None else (v is None for v in persistent)
        return map(
            Delivered,
            repeat(self.topic, count),
            repeat(self.queue, count),
            range(self.offset, self.end),
            self.bodies,
            self.keys,
            self.tags,
            headers,
            self.texts(chunk.ORDERING_KEY),
            flags,
            self.texts(chunk.UNIQUE_KEY),
            repeat(entry.born, count),
            repeat(HalfId(self.store, entry.txid, entry.part, entry.attempt, self.qid, entry.chunk, 0), count),
            range(self._skip, self._stop),
        )

    def _read(self, column: int) -> Column:
        return self.chunk.column(column, self._skip, self._stop)


def _texts(values: Texts) -> Column:
    return None if values is None else [None if value is None else value.encode() for value in values]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _json(headers: Mapping[str, str]) -> bytes:
    return json.dumps(dict(headers), separators=(",", ":"), ensure_ascii=False).encode()


def _headers(value: bytes) -> Mapping[str, str]:
    text = value.decode()
    found = json.loads(text)
    if type(found) is not dict or not all(type(value) is str for value in found.values()):
        raise ValueError("headers are not a JSON object of strings")
    if "\\u" in text:  # an escape may be half of a surrogate pair: it can't be stored again
        "".join([*found, *found.values()]).encode()
    return found


def _not_decoded(reason: Exception) -> ChunkDamaged:
    if isinstance(reason, UnicodeDecodeError):
        return written_wrong(f"a text is not UTF-8, {reason.reason}")
    what = str(reason) if isinstance(reason, ValueError) else "nested too deeply"
    return written_wrong(f"a header does not decode: {what}")
