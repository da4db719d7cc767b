"""Messages that were laid out are read as they were sent, each at its own offset."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.model import layout
from txsaga.model.chunk import MAX_BYTES, MAX_RECORDS
from txsaga.model.identity import StoreId
from txsaga.model.message import Message
from txsaga.model.records import LateSlot, LogEntry, Row
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


@given(st.lists(MESSAGES, min_size=1, max_size=10))
def test_every_message_has_an_id_of_its_own(sent: Sequence[Message]) -> None:
    ids = [got.id for got in batch(layout.lay_out(sent), len(sent)).messages()]
    assert len(set(ids)) == len(sent)


@pytest.mark.parametrize("count", [1, MAX_RECORDS, MAX_RECORDS + 1, 3 * MAX_RECORDS])
def test_many_messages_fill_chunks_of_bounded_size(count: int) -> None:
    rows = layout.rows({7: [Message("orders", str(n).encode()) for n in range(count)]}, first_chunk=5)
    assert [row.chunk for row in rows] == list(range(5, 5 + len(rows)))
    assert_bounded(rows)
    assert texts(rows) == [str(n) for n in range(count)]


def test_big_messages_fill_chunks_of_bounded_size() -> None:
    big = MAX_BYTES // 2 - 100
    rows = layout.rows({7: [Message("orders", bytes(big))] * 5})
    assert [row.count for row in rows] == [2, 2, 1]


def test_queues_have_chunks_of_their_own() -> None:
    rows = layout.rows({9: [Message("orders", b"b")], 7: [Message("orders", b"a")]})
    assert [(row.qid, row.chunk, row.count) for row in rows] == [(7, 0, 1), (9, 0, 1)]


def test_a_late_body_stands_behind_what_was_sent_before() -> None:
    from txsaga.model.late import lay_out

    sent = layout.rows({7: [Message("orders", b"x")] * (4 * MAX_RECORDS)})
    late = [lay_out(LateSlot(txid=1, slot=slot, qid=7), b"late") for slot in (1, 2)]
    chunks = [row.chunk for row in [*sent, *late]]
    assert chunks == sorted(set(chunks))


def assert_bounded(rows: Sequence[Row]) -> None:
    """Check that no chunk is too big to be handled in one piece."""
    assert all(0 < row.count <= MAX_RECORDS for row in rows)


def texts(rows: Sequence[Row]) -> list[str]:
    """Read the bodies of rows in order."""
    return [body.decode() for row in rows for body in batch(row.body, row.count).bodies]
