"""Reading on: what can't be read stays the next, and what takes too long is asked for in smaller portions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from txsaga.consume import queue_reader
from txsaga.consume.queue_reader import AHEAD, QueueReader
from txsaga.core.identity import StoreId
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.core.records import Bounds, LogEntry
from txsaga.errors import ChunkDamaged, StoreUnavailable

STORE = StoreId(UUID(int=7), 1)


class SlowLog:
    """A log of one queue whose fetches of many chunks never come to their end."""

    def __init__(self, bodies: Sequence[bytes], *, most: int = AHEAD) -> None:
        self.entries = [LogEntry(at, 1, 100 + at, 0, 0, 0, datetime.now(UTC), body) for at, body in enumerate(bodies)]
        self.most, self.asked = most, list[int]()

    def fetch(self, qid: int, offset: int, limit: int) -> Sequence[LogEntry]:
        self.asked.append(limit)
        if limit > self.most:
            raise StoreUnavailable("canceling statement due to statement timeout; retry")
        return self.entries[offset : offset + limit]

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        return {qid: Bounds(0, len(self.entries)) for qid in qids}


def reader_of(log: SlowLog) -> QueueReader:
    return QueueReader(cast(Any, log), 3, "news", 0, STORE, 0)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_a_chunk_that_can_not_be_read_is_not_passed_over() -> None:
    good = lay_out_one(Message("news", b"good"))
    reader = reader_of(SlowLog([good, b"cut", good]))
    first = reader.next()
    assert first is not None
    for _ in range(3):
        with pytest.raises(ChunkDamaged, match=r"queue 0 of 'news', offsets 1 to 1: .*seek\(3, 2\)"):
            reader.next()
    reader.seek(2)
    last = reader.next()
    assert last is not None and (first.offset, last.offset) == (0, 2)


def test_fewer_chunks_are_asked_for_where_many_take_too_long() -> None:
    log = SlowLog([lay_out_one(Message("news", b"large"))] * 40, most=5)
    reader, read = reader_of(log), 0
    while reader.next() is not None:
        read += 1
    assert read == 40
    assert log.asked[:4] == [16, 8, 4, 5]
    assert max(log.asked[1:]) <= 8


def test_it_asks_for_one_at_least_and_gives_up_with_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "patiently", lambda ask: ask())
    log = SlowLog([b""], most=0)
    reader = reader_of(log)
    for _ in range(7):
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            reader.next()
    assert log.asked == [16, 8, 4, 2, 1, 1, 1]
