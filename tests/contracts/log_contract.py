"""What every store promises of its log: offsets without gaps, in the order of decisions, once each."""

# The name of a test is a sentence.

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.contracts.samples import (
    COMMIT,
    PATIENCE,
    ROLLBACK,
    add,
    decided,
    drain,
    end_of,
    entries,
    is_held,
    new_group,
    new_queues,
    opened,
    prepared,
    published,
    read,
    row,
    settle,
    start,
)
from tests.contracts.timing import Later
from txsaga.core.records import Bounds, Half
from txsaga.store.store import Store

DAY = timedelta(days=1)


class LogContract:
    """Ticks and reads, as the port `Log` promises them."""

    def test_nothing_is_read_before_a_tick(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        published(store, group, row(qid, "a"))
        assert list(store.log.fetch(qid, 0, 10)) == []
        assert store.log.bounds([qid]) == {qid: Bounds(0, 0)}

    def test_a_tick_tells_how_many_chunks_it_gave_out(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        published(store, group, row(qid, "a", "b"), row(qid, "c", chunk=1))
        decided(store, end_of(prepared(store, group, row(qid, "never")), ROLLBACK))
        ticked = store.log.tick(100)
        assert ticked is not None
        assert (ticked.chunks, ticked.more) == (2, False)

    def test_a_tick_without_news_writes_nothing(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        published(store, group, row(qid, "a"))
        before = store.log.tick(100)
        again = [store.log.tick(100) for _ in range(3)]
        assert before is not None
        assert again == [before._replace(chunks=0)] * 3

    def test_offsets_have_no_gap_and_count_records(self, store: Store) -> None:
        qids, group = new_queues(store, count=2), new_group(store)
        published(store, group, row(qids[0], "a", "b", "c"), row(qids[1], "x"))
        published(store, group, row(qids[0], "d"))
        drain(store)
        published(store, group, row(qids[0], "e", "f"))
        assert [(entry.base, entry.count) for entry in entries(store, qids[0])] == [(0, 3), (3, 1), (4, 2)]
        assert [read(store, qid) for qid in qids] == [list("abcdef"), ["x"]]
        assert store.log.bounds(qids) == {qids[0]: Bounds(0, 6), qids[1]: Bounds(0, 1)}

    def test_offsets_follow_the_decisions_not_the_numbers(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        first, second = (prepared(store, group, row(qid, text)) for text in ("first", "second"))
        decided(store, end_of(second, COMMIT))
        decided(store, end_of(first, COMMIT))
        assert read(store, qid) == ["second", "first"]

    def test_a_producer_that_waits_for_its_answers_is_read_in_its_order(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        keyed = opened(store, group)
        add(store, keyed, 1, row(qid, "3"))
        half = prepared(store, group, row(qid, "1"))
        published(store, group, row(qid, "0"))
        decided(store, end_of(half, COMMIT))
        published(store, group, row(qid, "2"))
        settle(store, keyed, COMMIT)
        published(store, group, row(qid, "4"))
        assert read(store, qid) == list("01234")

    def test_decisions_of_one_batch_are_read_in_the_order_of_their_numbers(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, str(n))) for n in range(10)]
        store.halves.write((), [end_of(receipt, COMMIT) for receipt in reversed(receipts)])
        assert read(store, qid) == [str(n) for n in range(10)]

    def test_a_limited_tick_leaves_the_rest_for_the_next(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for n in range(9):
            published(store, group, row(qid, str(n)))
        first = store.log.tick(2)
        assert first is not None
        assert 0 < first.chunks < 9
        assert first.more
        drain(store, limit=2)
        assert read(store, qid) == [str(n) for n in range(9)]

    def test_rival_dispatchers_give_out_every_offset_once(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        with ThreadPoolExecutor(4) as threads:
            for n in range(30):
                published(store, group, row(qid, str(n)))
                list(threads.map(store.log.tick, [2] * 4))
        assert read(store, qid) == [str(n) for n in range(30)]

    def test_a_reader_may_start_inside_a_chunk(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for texts in ("abc", "d", "ef"):
            published(store, group, row(qid, *texts))
        drain(store)
        bases = {at: [entry.base for entry in store.log.fetch(qid, at, 10)] for at in range(7)}
        assert bases == {
            0: [0, 3, 4], 1: [0, 3, 4], 2: [0, 3, 4], 3: [3, 4], 4: [4], 5: [4], 6: []
        }  # fmt: skip

    def test_a_reader_gets_no_more_chunks_than_it_asks_for(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for texts in ("abc", "d", "ef"):
            published(store, group, row(qid, *texts))
        drain(store)
        assert [entry.base for entry in store.log.fetch(qid, 1, 2)] == [0, 3]
        assert [entry.base for entry in store.log.fetch(qid, 1, 10, 3)] == [0]

    @pytest.mark.req("RMQ-18")
    def test_the_log_leads_to_the_stored_chunk(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        stored = row(qid, "a", chunk=7)
        add(store, life, 3, stored)
        settle(store, life, COMMIT)
        (entry,) = entries(store, qid)
        place = (entry.txid, entry.part, entry.attempt, entry.chunk)
        assert place == (life.txid, 3, life.owner, 7)
        assert (entry.count, entry.body) == (stored.count, stored.body)

    def test_a_moment_leads_to_the_first_offset_given_out_from_then_on(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for texts in ("ab", "c"):
            published(store, group, row(qid, *texts))
            drain(store)
            later(0.05)
        first, second = entries(store, qid)
        assert store.log.offset_at(qid, first.born - DAY) == 0
        assert store.log.offset_at(qid, second.born) == 2
        assert store.log.offset_at(qid, second.born + DAY) == 3

    def test_a_waiting_reader_hears_of_a_tick(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        store.log.wait(0)  # a store that starts to listen now may say "look" the first time
        assert not store.log.wait(0.05)
        heard = start(lambda: [store.log.wait(0), store.log.wait(PATIENCE)][-1])
        for _ in range(100):  # the thread may not listen yet when the first tick comes
            published(store, group, row(qid, "a"))
            drain(store)
            if not is_held(heard):
                break
        assert heard.done()
        assert heard.result()

    def test_settled_partitions_hold_nothing_back(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        store.halves.write([Half(group, [row(qid, "b")], plain=True)], ())
        store.log.extend_partitions(1000)
        assert store.log.extend_partitions(1000) == 0
        store.log.drop_partitions()
        decided(store, end_of(receipt, COMMIT))
        assert sorted(read(store, qid)) == ["a", "b"]
