"""Messages that were laid out are read as they were sent, each at its own offset."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.core import chunk, layout
from txsaga.core.identity import StoreId
from txsaga.core.message import Message
from txsaga.core.records import LogEntry
from txsaga.testing.clock import START

TEXTS = st.none() | st.text(max_size=20)
MESSAGES = st.builds(
    Message,
    st.just("orders"),
    st.binary(max_size=40),
    key=TEXTS,
    tag=TEXTS,
    headers=st.none() | st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    ordering_key=TEXTS,
    persistent=st.booleans(),
    unique_key=TEXTS,
)
STORE = StoreId(UUID(int=7), 1)


def batch(body: bytes, count: int, *, base: int = 0, start: int = 0) -> layout.Batch:
    """Return a chunk as a reader at `start` gets it."""
    entry = LogEntry(base, count, 42, 1, 2, 3, START, body)
    return layout.Batch(entry, topic="orders", queue=0, qid=7, store=STORE, start=start)


@pytest.mark.req("RMQ-23")
@given(st.lists(MESSAGES, min_size=1, max_size=10), st.data())
def test_a_message_is_read_as_it_was_sent(sent: Sequence[Message], data: st.DataObject) -> None:
    base = data.draw(st.integers(min_value=0, max_value=2**40))
    skipped = data.draw(st.integers(min_value=0, max_value=len(sent)))
    read = batch(layout.lay_out(sent), len(sent), base=base, start=base + skipped)
    messages = list(read.messages())
    assert len(read) == len(messages) == len(sent) - skipped
    for at, (got, wanted) in enumerate(zip(messages, sent[skipped:], strict=True), start=skipped):
        assert (got.topic, got.queue, got.offset, got.born) == ("orders", 0, base + at, START)
        assert (got.body, got.key, got.tag) == (wanted.body, wanted.key, wanted.tag)
        assert dict(got.headers) == dict(wanted.headers or {})
        assert (got.ordering_key, got.persistent) == (wanted.ordering_key, wanted.persistent)
        assert got.unique_key == wanted.unique_key
    assert list(read.bodies) == [message.body for message in sent[skipped:]]


@given(MESSAGES)
def test_a_message_that_lies_alone_is_read_as_any_other(sent: Message) -> None:
    entry = LogEntry(100, 1, 42, 1, 2, 3, START, layout.lay_out_one(sent))
    assert entry.body == layout.lay_out([sent])
    (read,) = layout.Batch(entry, topic="orders", queue=0, qid=7, store=STORE, start=0).messages()
    assert layout.lone(entry, topic="orders", queue=0, qid=7, store=STORE) == read


@pytest.mark.parametrize("key", [None, b"k"])
def test_a_record_alone_may_have_a_column_with_a_bitmap(key: bytes | None) -> None:
    """As another writer may lay it out: the kind says that some are absent."""
    stored = bytearray(chunk.encode([[b"body"], [b"k"], *[None] * 6]))
    body_end = 24 + 8 + 8
    bitmap = bytes([key is not None]) + bytes(7)
    stored[17] = 2
    stored[body_end:body_end] = bitmap
    stored[8:12] = crc32(stored[16:], crc32(stored[:8])).to_bytes(4, "little")
    found = chunk.only_record(bytes(stored))
    assert found == [b"body", key, *[None] * 6]


@given(st.lists(MESSAGES, min_size=1, max_size=10), st.data())
def test_a_part_of_a_batch_is_read_like_the_whole(sent: Sequence[Message], data: st.DataObject) -> None:
    whole = batch(layout.lay_out(sent), len(sent), base=100, start=100 + data.draw(st.integers(0, len(sent))))
    start = data.draw(st.integers(100, 100 + len(sent)))
    end = data.draw(st.integers(start, 200))
    part, every = whole.part(start, end), batch(layout.lay_out(sent), len(sent), base=100)
    assert list(part.messages()) == list(every.messages())[start - 100 : end - 100]
    assert (part.offset, part.end) == (start, min(end, 100 + len(sent)))


@given(st.lists(MESSAGES, min_size=1, max_size=10))
def test_every_message_has_an_id_of_its_own(sent: Sequence[Message]) -> None:
    ids = [got.id for got in batch(layout.lay_out(sent), len(sent)).messages()]
    assert len(set(ids)) == len(sent)
