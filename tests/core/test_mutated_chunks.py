"""Bytes whose checksum is right and that somebody else wrote: every reader gives exactly what they say, or names them.

What a reader should find is read here once more, value by value, as the page about the layout says it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID
from zlib import crc32

import pytest

from tests.chaos.tally import KILL_SEED
from txsaga.cli.messages import Tail
from txsaga.consume.fetching import Fetching
from txsaga.consume.queue_reader import QueueReader
from txsaga.core import chunk
from txsaga.core.identity import StoreId
from txsaga.core.layout import lay_out, lay_out_one, unpack
from txsaga.core.message import Delivered, Message
from txsaga.core.records import Bounds, LogEntry
from txsaga.errors import ChunkDamaged
from txsaga.spark.stored import arrow_batches

STORE, BORN, QID = StoreId(UUID(int=7), 1), datetime(2026, 3, 3, tzinfo=UTC), 3
TOPIC = SimpleNamespace(name="news")
GOOD = lay_out_one(Message("news", b"good"))
SENT = [
    [Message("news", b"one")],
    [Message("news", b"one", key="k", tag="t", headers={"a": "b"}, ordering_key="o", unique_key="u")],
    [Message("news", b"", key="öß", headers={"naïve": "\N{SNOWMAN}"}, persistent=False)],
    [Message("news", b"%d" % n, key=None if n % 3 else "ключ", tag="t" * n) for n in range(5)],
    [Message("news", bytes(n), headers={"n": str(n)} if n % 2 else None, ordering_key="ü") for n in range(40)],
]
CHUNKS = [*map(lay_out, SENT), lay_out_one(SENT[1][0])]
ODD_NUMBERS = [0, 1, 7, 0x7F, 0x80, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1]
ODD_BYTES = [b"\x00", b"\xff", b"\x80", b'"', b"{", b"\\", b"1", b"\x02"]


class Found(NamedTuple):
    """What a reader gives of one message."""

    body: bytes
    key: str | None
    tag: str | None
    headers: Mapping[str, str]
    ordering_key: str | None
    persistent: bool
    unique_key: str | None

    @classmethod
    def of(cls, message: Message | Delivered) -> Found:
        """Take it from a message."""
        return cls(*(getattr(message, name) for name in cls._fields))


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Yield chunks with something changed, under the right checksum."""
    drawn = random.Random(seed)
    for _ in range(count):
        stored = bytearray(drawn.choice(CHUNKS))
        for _ in range(drawn.choice((1, 1, 1, 2, 4))):
            change(stored, drawn)
        yield sealed(stored)


def change(stored: bytearray, drawn: random.Random) -> None:
    """Change a byte, a number, or the length."""
    at = drawn.randrange(1, len(stored))
    kind = drawn.random()
    if kind < 0.6:
        stored[at] = drawn.randrange(256)
    elif kind < 0.75:
        stored[at : at + 1] = drawn.choice(ODD_BYTES)
    elif kind < 0.95:
        at -= at % 4
        stored[at : at + 4] = drawn.choice(ODD_NUMBERS).to_bytes(4, "little")
    else:
        del stored[max(24, at) :]
        stored += bytes(drawn.choice((0, 0, 1, 8)))


def sealed(stored: bytes | bytearray) -> bytes:
    """Put the checksum right."""
    bytes_ = bytearray(stored)
    bytes_[0] = min(bytes_[0], chunk.VERSION)  # what is newer is told apart before its checksum is looked at
    bytes_[8:12] = crc32(bytes_[16:], crc32(bytes_[:8])).to_bytes(4, "little")
    return bytes(bytes_)


def said_by(stored: bytes) -> list[Found] | None:
    """Return what a chunk says; None when it breaks the layout."""
    if stored[0] != 1 or stored[1] != 8:
        return None
    count, at, columns = int.from_bytes(stored[4:8], "little"), 24, list[list[bytes | None]]()
    for kind in stored[16:24]:
        bits = 2**count - 1 if kind == 1 and count < 2**16 else 0
        if kind > 2 or count > len(stored):
            return None
        if kind == 2:
            bits = int.from_bytes(stored[at : at + (count + 7) // 8], "little")
            at += (count + 63) // 64 * 8
        if not kind:
            columns.append([None] * count)
            continue
        ends = [int.from_bytes(stored[at + 4 * n : at + 4 * n + 4], "little", signed=True) for n in range(count + 1)]
        at += (count + 2) // 2 * 8
        if ends[0] or any(a > b for a, b in pairwise(ends)) or at + ends[-1] > len(stored):
            return None
        values = [stored[at + a : at + b] for a, b in pairwise(ends)]
        if len(columns) in (chunk.KEY, chunk.TAG, chunk.ORDERING_KEY, chunk.UNIQUE_KEY) and not are_texts(values):
            return None
        columns.append([value if bits >> n & 1 else None for n, value in enumerate(values)])
        at += (ends[-1] + 7) // 8 * 8
    if at != len(stored) or not stored[16] or None in columns[0]:
        return None
    try:
        return [message(record) for record in zip(*columns, strict=True)]
    except (ValueError, TypeError):
        return None


def are_texts(values: Sequence[bytes]) -> bool:
    """Tell whether all are UTF-8, what lies under an absent one too."""
    try:
        return all(isinstance(value.decode(), str) for value in values)
    except UnicodeDecodeError:
        return False


def message(record: Sequence[bytes | None]) -> Found:
    """Read a message of its values."""
    body, key, tag, heads, ordering_key, _, persistent, unique_key = record
    headers = {} if heads is None else json.loads(heads.decode())
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise TypeError
    for text in (*headers, *headers.values()):
        text.encode()
    texts = [None if text is None else text.decode() for text in (key, tag, ordering_key, unique_key)]
    assert body is not None
    return Found(body, texts[0], texts[1], headers, texts[2], persistent is None, texts[3])


class Log:
    """A queue with one chunk between two good ones."""

    def __init__(self, stored: bytes, count: int) -> None:
        self.wrong = LogEntry(1, count, 42, 0, 0, 0, BORN, stored)
        good = LogEntry(0, 1, 41, 0, 0, 0, BORN, GOOD)
        self.entries = [good, self.wrong, good._replace(base=self.wrong.behind)]

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        return [entry for entry in self.entries if entry.behind > offset and entry.base < end]

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        return dict.fromkeys(qids, Bounds(0, self.entries[-1].behind))


def kernel(log: Log) -> Any:  # a stand-in
    """Return as much of one as readers ask for."""
    store = SimpleNamespace(log=log, registry=SimpleNamespace(identity=STORE))
    return SimpleNamespace(store=store, topics=SimpleNamespace(by_queue=lambda _: {QID: (TOPIC, 0)}))


def by_stream(log: Log) -> list[Found] | None:
    reader = QueueReader(cast(Any, log), QID, "news", 0, STORE, 1)
    try:
        batch = reader.next()
    except ChunkDamaged as damage:
        behind = log.wrong.behind
        assert f"queue 0 of 'news', offsets 1 to {behind - 1}: " in str(damage) and f"seek(3, {behind})" in str(damage)
        reader.seek(behind)
        good = reader.next()
        assert good is not None and good.bodies == [b"good"]
        return None
    assert batch is not None
    found = list(map(Found.of, batch.messages()))
    assert [each.body for each in found] == batch.bodies and [each.key for each in found] == batch.keys
    return found


def by_group(log: Log) -> list[Found] | None:
    found = Fetching(kernel(log), {QID: (cast(Any, TOPIC), 0)}).read(QID, 0, log.entries[-1].behind)
    assert [m.body for m in (found.messages[0], found.messages[-1])] == [b"good", b"good"]
    if not found.damaged:
        return list(map(Found.of, found.messages[1:-1]))
    assert len(found.messages) == 2 and found.damaged[0].copy.body == log.wrong.body
    assert [each.offset for each in found.damaged] == [*range(1, log.wrong.behind)]
    return None


def by_tail(log: Log) -> list[Found] | None:
    messages, read = Tail(kernel(log), ["news"]).messages(), list[Found]()
    try:
        read += map(Found.of, messages)
    except ChunkDamaged as damage:
        assert f"txsaga tail 'news' --from {log.wrong.behind}" in str(damage)
        assert [each.body for each in read] == [b"good"]
        return None
    return read[1:-1]


def by_spark(log: Log) -> list[tuple[str | None, str | None, bytes]] | None:
    try:
        (found,) = arrow_batches([log.wrong], 0, 1, log.wrong.behind)
    except ChunkDamaged as damage:
        assert f"queue 0, offsets 1 to {log.wrong.behind - 1}: " in str(damage)
        return None
    found.validate(full=True)
    return list(zip(*(found.column(name).to_pylist() for name in ("key", "tag", "body")), strict=True))


def by_checker(log: Log) -> list[Found] | None:
    try:
        return list(map(Found.of, unpack("news", log.wrong.body)))
    except ChunkDamaged:
        return None


def read_by_all(count: int, seed: int) -> tuple[int, int]:
    """Compare what readers find with what is there; return how many were damaged, and how many were not."""
    damaged = exact = 0
    for stored in mutations(count, seed):
        wanted, lies = said_by(stored), int.from_bytes(stored[4:8], "little")
        log = Log(stored, min(max(lies, 1), 500))
        if lies != log.wrong.count:
            wanted = None  # the door lets none through that lies about its count
        for read in (by_stream, by_group, by_tail):
            assert read(log) == wanted, (read, stored)
        assert by_spark(log) == (None if wanted is None else [(m.key, m.tag, m.body) for m in wanted]), stored
        assert lies != log.wrong.count or by_checker(log) == wanted, stored
        damaged, exact = damaged + (wanted is None), exact + (wanted is not None)
    return damaged, exact


def test_what_somebody_else_wrote_is_read_exactly_or_is_damaged() -> None:
    damaged, exact = read_by_all(2_000, seed=1)
    assert damaged > 400 and exact > 400


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thousands_of_others_are_read_exactly_or_are_damaged(pytestconfig: pytest.Config) -> None:
    count = 50_000 if pytestconfig.getoption("full_matrix") else 5_000
    damaged, exact = read_by_all(count, seed=int(os.environ[KILL_SEED]))
    assert damaged > count // 5 and exact > count // 5


def test_headers_that_are_nested_too_deeply_are_damaged() -> None:
    columns: list[bytes | None] = [b"x", None, None, b'{"a":' + b"[" * 200_000, None, None, None, None]
    log = Log(chunk.encode_one(columns), 1)
    assert [read(log) for read in (by_stream, by_group, by_tail, by_spark, by_checker)] == [None] * 5
