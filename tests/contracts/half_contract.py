"""What every store promises of halves: durable and invisible until their decision, never changed by it."""

# The name of a test is a sentence.

from __future__ import annotations

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    answered,
    decided,
    drain,
    end_of,
    entries,
    new_group,
    new_queues,
    one_by_one,
    prepared,
    published,
    read,
    row,
)
from txsaga.core.decision import Decision, ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.records import Half, Receipt
from txsaga.core.topic import HALF_TOPIC
from txsaga.errors import TransactionsRejected, TxSagaError
from txsaga.store.store import Store


class HalfContract:
    """Stored halves and plain messages, as the port `HalfStore` promises them."""

    def test_halves_are_numbered_in_the_order_given(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = store.halves.write([Half(group, [row(qid, str(n))]) for n in range(5)], ()).receipts
        numbers = [receipt.txid for receipt in receipts if isinstance(receipt, Receipt)]
        assert len(numbers) == 5
        assert numbers == sorted(set(numbers))
        assert prepared(store, group, row(qid, "later")).txid > numbers[-1]

    def test_a_stored_half_is_acknowledged(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        assert (receipt.code, receipt.group) == (ReplyCode.SEND_OK, group)
        assert receipt.token

    def test_no_two_transactions_have_the_same_token(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        assert len({prepared(store, group, row(qid, "a")).token for _ in range(5)}) == 5

    @pytest.mark.req("RMQ-03")
    def test_nobody_reads_a_half_before_its_decision(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        prepared(store, group, row(qid, "a"))
        assert read(store, qid) == []

    @pytest.mark.req("RMQ-23", "RMQ-54")
    def test_a_committed_half_is_read_from_its_own_queue(self, store: Store) -> None:
        qids, group = new_queues(store, count=3), new_group(store)
        half = row(qids[2], "a", "b")
        decided(store, end_of(prepared(store, group, half), COMMIT))
        (entry,) = entries(store, qids[2])
        assert (entry.base, entry.count, entry.body) == (0, 2, half.body)
        assert [read(store, qid) for qid in qids] == [[], [], ["a", "b"]]

    @pytest.mark.req("RMQ-56")
    def test_a_rolled_back_half_is_never_read(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        decided(store, end_of(prepared(store, group, row(qid, "a")), ROLLBACK))
        published(store, group, row(qid, "b"))
        assert read(store, qid) == ["b"]

    @pytest.mark.req("RMQ-16", "RMQ-34", "RMQ-20")
    def test_an_undecided_half_lies_under_the_half_topic(self, store: Store) -> None:
        qids, group = new_queues(store, count=4), new_group(store)
        receipt = prepared(store, group, row(qids[3], "a", "b"))
        (view,) = store.halves.views(receipt.txid)
        assert (view.topic, view.queue, view.flag, view.prepared) == (HALF_TOPIC, 0, "NOT", True)
        assert (view.real_topic, view.real_queue, view.group, view.count) == ("orders", 3, "shop", 2)

    @pytest.mark.req("RMQ-55", "RMQ-20")
    def test_a_committed_half_shows_its_real_place(self, store: Store) -> None:
        qids, group = new_queues(store, count=4), new_group(store)
        receipt = prepared(store, group, row(qids[3], "a"))
        decided(store, end_of(receipt, COMMIT))
        (view,) = store.halves.views(receipt.txid)
        assert (view.topic, view.queue, view.flag, view.prepared) == ("orders", 3, "COMMIT", False)
        (entry,) = entries(store, qids[3])
        assert (entry.txid, entry.chunk, entry.born) == (receipt.txid, 0, view.born)

    @pytest.mark.req("RMQ-19", "RMQ-20")
    def test_a_rolled_back_half_stays_where_it_lies_and_is_marked(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, ROLLBACK))
        (view,) = store.halves.views(receipt.txid)
        assert (view.topic, view.flag, view.prepared) == (HALF_TOPIC, "ROLLBACK", False)
        assert (view.real_topic, view.count) == ("orders", 1)

    @pytest.mark.req("RMQ-13")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_settling_leaves_the_half_as_it_was(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a", chunk=7))
        (before,) = store.halves.views(receipt.txid)
        decided(store, end_of(receipt, decision))
        drain(store)
        (after,) = store.halves.views(receipt.txid)
        kept = ("id", "real_topic", "real_queue", "group", "count", "born")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]

    @pytest.mark.req("RMQ-22")
    def test_a_half_is_found_by_its_transaction_number_alone(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"), row(qid, "b", chunk=1))
        ids = [HalfId.decode(view.id) for view in store.halves.views(receipt.txid)]
        assert [(id.store, id.txid, id.qid, id.chunk) for id in ids] == [
            (store.registry.identity, receipt.txid, qid, chunk) for chunk in (0, 1)
        ]
        assert store.halves.views(receipt.txid + 1000) == []

    @pytest.mark.req("RMQ-52")
    def test_a_rejecting_store_stores_no_half_and_still_takes_plain_messages(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        store.registry.reject_transactions(True)
        answers = store.halves.write([Half(group, [row(qid, "a")])] * 2, ()).receipts
        assert [type(answer) for answer in answers] == [TransactionsRejected] * 2
        assert store.overview.transactions(undecided=True, limit=10) == []
        published(store, group, row(qid, "b"))
        store.registry.reject_transactions(False)
        decided(store, end_of(prepared(store, group, row(qid, "c")), COMMIT))
        assert read(store, qid) == ["b", "c"]

    def test_an_end_is_taken_while_halves_are_rejected(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        store.registry.reject_transactions(True)
        assert decided(store, end_of(receipt, COMMIT)).won

    def test_a_bad_half_does_not_fail_its_neighbours(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        rows = [[row(qid, "a")], [row(qid, "bad"), row(qid, "bad")], [row(qid, "b")]]
        answers = one_by_one(
            lambda halves: store.halves.write(halves, ()).receipts, [Half(group, each, plain=True) for each in rows]
        )
        assert [isinstance(answer, TxSagaError) for answer in answers] == [False, True, False]
        assert read(store, qid) == ["a", "b"]

    def test_plain_messages_are_read_in_the_order_in_which_they_were_published(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        for batch in range(3):
            store.halves.write([Half(group, [row(qid, f"{batch}.{n}")], plain=True) for n in range(4)], ())
        assert read(store, qid) == [f"{batch}.{n}" for batch in range(3) for n in range(4)]

    def test_a_plain_message_is_committed_from_the_start(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = published(store, group, row(qid, "a"))
        standing = decided(store, end_of(receipt, ROLLBACK))
        assert (standing.decision, standing.won) == (COMMIT, False)
        assert read(store, qid) == ["a"]

    def test_halves_plain_messages_and_decisions_go_in_one_batch(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        before = [prepared(store, group, row(qid, body)) for body in ("a", "b")]
        halves = [Half(group, [row(qid, body)], plain=body == "p") for body in ("c", "p", "d")]
        ends = [end_of(before[0], COMMIT), end_of(before[1], ROLLBACK), end_of(before[0], ROLLBACK)]
        receipts, standings = store.halves.write(halves, ends)
        assert [answered(standing).won for standing in standings] == [True, True, False]
        assert read(store, qid) == ["a", "p"]
        assert decided(store, end_of(answered(receipts[2]), COMMIT)).won
        assert decided(store, end_of(answered(receipts[0]), ROLLBACK)).won
        assert not decided(store, end_of(answered(receipts[1]), ROLLBACK)).won
        assert read(store, qid) == ["a", "p", "d"]

    def test_while_halves_are_rejected_the_rest_of_a_batch_is_written(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        half = prepared(store, group, row(qid, "a"))
        store.registry.reject_transactions(True)
        batch = [Half(group, [row(qid, "b")]), Half(group, [row(qid, "p")], plain=True)]
        receipts, standings = store.halves.write(batch, [end_of(half, COMMIT)])
        assert [isinstance(receipt, TransactionsRejected) for receipt in receipts] == [True, False]
        assert answered(standings[0]).won
        assert sorted(read(store, qid)) == ["a", "p"]

    def test_nothing_in_is_nothing_out(self, store: Store) -> None:
        assert not store.halves.write([], ()).receipts
        assert store.halves.write([], []) == ([], [])
        assert not store.halves.write((), []).standings
