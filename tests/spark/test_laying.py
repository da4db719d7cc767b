"""Rows of Arrow are laid out as the outbox lays out lists: the same chunks in the same queues."""

from itertools import count

import pyarrow as pa
import pytest

from txsaga.core.chunk import BODY, KEY, MAX_BYTES, MAX_RECORDS, TAG, Chunk
from txsaga.core.layout import lay_out_columns
from txsaga.core.message import MAX_BODY
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import InvalidMessage
from txsaga.spark.stored import FLUSH, RowLayout, together

TOPIC = Topic(id=1, name="orders", type=TopicType.TRANSACTION, qids=(11, 12, 13))


def laying() -> RowLayout:
    return RowLayout(TOPIC, count().__next__)


def batch(bodies: list[bytes], keys: list[str] | None = None, tags: list[str] | None = None) -> pa.RecordBatch:
    columns = {"body": pa.array(bodies, pa.binary())}
    columns |= {} if tags is None else {"tag": pa.array(tags, pa.large_string())}
    columns |= {} if keys is None else {"key": pa.array(keys, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def test_a_key_has_one_queue_and_its_rows_stay_in_order() -> None:
    bodies, keys = [b"%d" % n for n in range(5000)], [f"ö{n % 97}" for n in range(5000)]
    rows = laying().rows(batch(bodies, keys, ["t"] * 5000).slice(7))
    read = {qid: list[tuple[bytes, bytes]]() for qid in TOPIC.qids}
    for row in rows:
        found = Chunk(row.body)
        assert found.count == row.count <= MAX_RECORDS
        assert found.column(TAG) == [b"t"] * row.count
        read[row.qid] += zip(found.column(BODY) or (), found.column(KEY) or (), strict=True)  # type: ignore[arg-type]
    for qid in TOPIC.qids:
        wanted = [(body, key) for body, key in zip(bodies[7:], keys[7:], strict=True)]
        assert read[qid] == [(body, key.encode()) for body, key in wanted if TOPIC.queue_for(key, 0) == qid]
        assert [row.chunk for row in rows if row.qid == qid] == list(range(len([r for r in rows if r.qid == qid])))


def test_a_chunk_is_what_the_outbox_lays_out() -> None:
    bodies, keys = [b"a", b"", b"ccc"], ["k", "k", "k"]
    (row,) = laying().rows(batch(bodies, keys))
    assert row.body == lay_out_columns(bodies, key=keys)


def test_rows_without_keys_go_to_the_queues_by_turns() -> None:
    rows = laying().rows(batch([b"x"] * (4 * MAX_RECORDS + 1)))
    assert [row.qid for row in rows] == [11, 12, 13, 11, 12]
    assert [row.chunk for row in rows] == [0, 0, 0, 1, 1]
    assert [row.count for row in rows] == [*[MAX_RECORDS] * 4, 1]


def test_chunks_go_on_where_the_step_before_ended() -> None:
    one = laying()
    assert [[row.chunk for row in one.rows(batch([b"x"], ["k"]))] for _ in range(3)] == [[0], [1], [2]]


def test_big_rows_are_cut_and_small_ones_put_together() -> None:
    big = batch([bytes(MAX_BODY)] * 5)
    found = list(together([big, *[batch([b"x"])] * 3]))
    assert sum(each.num_rows for each in found) == 8
    assert all(each.nbytes <= FLUSH or each.num_rows == 1 for each in found)
    rows = laying().rows(big)
    assert sum(row.count for row in rows) == 5
    assert all(len(row.body) <= MAX_BYTES + 1000 for row in rows)
    assert len(list(together([batch([b"x"] * 10)] * 10))) == 1


@pytest.mark.parametrize(
    "given",
    [
        batch([None]),  # type: ignore[list-item]
        batch([b"a"], [None]),  # type: ignore[list-item]
        batch([bytes(MAX_BODY + 1)]),
        batch([b"a"], ["k" * 2000]),
        batch([b"a"], None, ["t" * 300]),
    ],
)
def test_what_is_no_message_is_refused(given: pa.RecordBatch) -> None:
    with pytest.raises(InvalidMessage):
        laying().rows(given)
