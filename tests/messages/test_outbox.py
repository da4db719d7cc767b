"""What waits to be stored lies in chunks of bounded size, and all of it fits into one statement."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.oracle import MemoryStore
from txsaga.core.announcer import Announcer
from txsaga.core.chunk import BODY, MAX_BYTES, MAX_RECORDS, Chunk
from txsaga.core.message import MAX_BODY, MAX_HEADERS, Message
from txsaga.core.records import LateSlot, Row
from txsaga.core.topic import SendKind, TopicType
from txsaga.errors import InvalidMessage
from txsaga.evidence.late_bodies import lay_out
from txsaga.messages import message_buffer as outbox
from txsaga.messages.message_buffer import Outbox
from txsaga.messages.topics import Topics

FRAME = 16 * 1024  # offsets and padding of a full chunk


@pytest.fixture
def box() -> Outbox:
    """Give an empty outbox of plain messages to a topic with two queues."""
    topics = Topics(MemoryStore().registry, Announcer())
    topics.create("bulk", TopicType.NORMAL, queues=2)
    return Outbox(topics, SendKind.PLAIN)


def filled(box: Outbox, sent: Sequence[bytes]) -> list[Row]:
    """Send messages to one queue, one by one, and take what lies there."""
    for body in sent:
        box.add(Message("bulk", body, key="one queue"))
    return box.take()


def bodies(rows: Sequence[Row]) -> list[bytes]:
    return [body for row in rows for body in Chunk(row.body).column(BODY) or [] if body is not None]


@pytest.mark.parametrize("count", [1, MAX_RECORDS, MAX_RECORDS + 1, 3 * MAX_RECORDS])
def test_many_messages_fill_chunks_of_bounded_size(box: Outbox, count: int) -> None:
    sent = [str(n).encode() for n in range(count)]
    rows = filled(box, sent)
    assert [row.chunk for row in rows] == list(range(len(rows)))
    assert all(0 < row.count <= MAX_RECORDS for row in rows)
    assert bodies(rows) == sent


def test_big_messages_fill_chunks_of_bounded_size(box: Outbox) -> None:
    rows = filled(box, [bytes(MAX_BODY - 100)] * 5)
    assert [row.count for row in rows] == [2, 2, 1]


def test_queues_have_chunks_of_their_own(box: Outbox) -> None:
    box.add(Message("bulk", b"a"))  # to one queue and the other by turns
    box.take()
    box.add(Message("bulk", b"b"))
    box.add(Message("bulk", b"c"))
    first, second = box.take()
    assert first.qid < second.qid  # in the order of the queues, whichever had its message first
    assert (first.chunk, second.chunk) == (1, 0)


def test_chunks_of_one_queue_are_numbered_on_behind_what_was_taken(box: Outbox) -> None:
    taken = [*filled(box, [b"a"]), *filled(box, [b"b"])]
    assert [row.chunk for row in taken] == [0, 1]


def test_a_late_body_stands_behind_what_was_sent_before(box: Outbox) -> None:
    sent = filled(box, [b"x"] * (4 * MAX_RECORDS))
    late = [lay_out(LateSlot(txid=1, slot=slot, qid=sent[0].qid), b"late") for slot in (1, 2)]
    chunks = [row.chunk for row in [*sent, *late]]
    assert chunks == sorted(set(chunks))


@pytest.mark.parametrize("keyed", [False, True])
def test_big_columns_are_cut_into_chunks_of_bounded_size(box: Outbox, keyed: bool) -> None:
    """Ten bodies of four megabytes are far fewer records than a chunk may hold."""
    sent = [bytes([n]) * MAX_BODY for n in range(10)]
    box.add_many("bulk", sent, keys=["one queue"] * 10 if keyed else None)
    rows = box.take()
    assert max(len(row.body) for row in rows) <= MAX_BYTES + FRAME
    assert len(rows) == (10 if keyed else 5)  # with a key beside each body, two are too much for a chunk
    assert bodies(rows) == sent
    assert len({(row.qid, row.chunk) for row in rows}) == len(rows)


def test_columns_of_many_small_records_fill_whole_chunks(box: Outbox) -> None:
    sent = [b"%d" % n for n in range(2 * MAX_RECORDS + 1)]
    box.add_many("bulk", sent, keys=["one queue"] * len(sent))
    rows = box.take()
    assert [row.count for row in rows] == [MAX_RECORDS, MAX_RECORDS, 1]
    assert bodies(rows) == sent


def test_headers_and_keys_count_like_bodies(box: Outbox) -> None:
    """Without bodies at all, five hundred messages with full headers are sixteen megabytes."""
    headers = {"h": "x" * (MAX_HEADERS - 1)}
    for _ in range(MAX_RECORDS):
        box.add(Message("bulk", b"", key="one queue", headers=headers))
    assert box.bytes > MAX_RECORDS * MAX_HEADERS
    rows = box.take()
    assert max(len(row.body) for row in rows) <= MAX_BYTES + FRAME
    assert sum(row.count for row in rows) == MAX_RECORDS


def test_what_is_stored_in_one_step_has_a_bound(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outbox.MOST == 64 * 1024 * 1024
    monkeypatch.setattr(outbox, "MOST", 1000)
    box.add_many("bulk", [b"x" * 300] * 3)
    told = "1,200 bytes would be stored in one step, at most 1,000 are; send fewer at a time"
    with pytest.raises(InvalidMessage, match=told):
        box.add_many("bulk", [b"y" * 100] * 3)
    with pytest.raises(InvalidMessage, match="1,101 bytes would be stored"):
        box.add(Message("bulk", b"y" * 200, key="k"))
    assert (box.bytes, box.count) == (900, 3)
    assert bodies(box.take()) == [b"x" * 300] * 3
    box.add_many("bulk", [b"z" * 1000])
    assert bodies(box.take()) == [b"z" * 1000]


def test_a_heavy_send_is_refused_whole(box: Outbox) -> None:
    one = bytes(MAX_BODY)
    with pytest.raises(InvalidMessage, match="272,629,760 bytes would be stored in one step"):
        box.add_many("bulk", [one] * 65)
    assert box.take() == []
