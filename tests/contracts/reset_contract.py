"""What every store promises of moving a group: nobody is at work, and nothing of before comes again."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.binding_contract import bind
from tests.contracts.claiming import GROUP, acked, buried, due, filled, offsets, take, taken
from tests.contracts.samples import claimed, new_group, opened, position
from txsaga.consume.claim import Policy, Style
from txsaga.core.records import Intent
from txsaga.errors import GroupInUse, LeaseLost
from txsaga.store.store import Store


class ResetContract:
    """`Queues.reset` and `Queues.forget`, as the port promises them."""

    def test_a_group_reads_on_from_where_it_is_put(self, store: Store) -> None:
        qid = filled(store, *"abcdef")
        assert acked(store, taken(store, qid)) == [True]
        store.queues.reset(GROUP, {qid: 2})
        assert position(store, qid) == 2
        assert offsets(taken(store, qid)) == [2, 3, 4, 5]

    def test_what_would_have_come_again_is_forgotten(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid, limit=1)
        store.claims.put_back(claim, timedelta(0), "broken")
        store.queues.reset(GROUP, {qid: 3})
        assert due(store, qid) == []

    def test_what_was_replayed_is_a_dead_letter_again(self, store: Store) -> None:
        qid = filled(store, *"ab")
        store.groups.open(GROUP, Style.WORK, Policy())
        buried(store, taken(store, qid, limit=1), "broken")
        (letter,) = store.dead_letters.list(GROUP, 10)
        assert store.dead_letters.replay([letter.id]) == 1
        store.queues.reset(GROUP, {qid: 2})
        (again,) = store.dead_letters.list(GROUP, 10)
        assert (again.message, again.cause) == (letter.message, "the group was reset")
        assert due(store, qid) == []

    def test_a_group_whose_messages_are_held_stays(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        with pytest.raises(GroupInUse):
            store.queues.reset(GROUP, {qid: 0})
        assert acked(store, claim) == [True]
        store.queues.reset(GROUP, {qid: 0})

    def test_a_stream_with_a_living_owner_stays(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = claimed(store, qid)
        with pytest.raises(GroupInUse):
            store.queues.reset(GROUP, {qid: 3})
        store.queues.leave(GROUP, "anna", ["orders"])
        store.queues.reset(GROUP, {qid: 3})
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 1)

    def test_a_queue_that_a_transaction_is_bound_to_stays(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim, life = claimed(store, qid), opened(store, new_group(store, "producers"))
        with store.ledgers.open() as ledger:
            intent = Intent(group=GROUP, qid=qid, start=0, end=1, epoch=claim.epoch, txid=life.txid)
            ledger.intend(intent, "anna")
        store.queues.leave(GROUP, "anna", ["orders"])
        with pytest.raises(GroupInUse):
            store.queues.reset(GROUP, {qid: 3})

    def test_all_queues_are_moved_or_none(self, store: Store) -> None:
        one, two = filled(store, *"abc"), filled(store, *"abc", name="news")
        taken(store, two)
        with pytest.raises(GroupInUse):
            store.queues.reset(GROUP, {one: 3, two: 3})
        assert position(store, one) == 0

    def test_a_group_that_leaves_a_topic_keeps_the_others(self, store: Store) -> None:
        one, two = filled(store, *"abc"), filled(store, *"de", name="news")
        store.claims.put_back(taken(store, one, limit=1), timedelta(0), "broken")
        store.queues.forget(GROUP, [one])
        assert (due(store, one), take(store, one)) == ([], None)
        assert [reading.topic for reading in store.overview.readings()] == ["news"]
        assert offsets(taken(store, one, two)) == [0, 1]
        store.queues.forget(GROUP, [one])  # it is gone already
        store.queues.create_cursors(GROUP, {one: 0})
        assert offsets(taken(store, one)) == [0, 1, 2]

    def test_what_was_replayed_in_a_topic_that_is_left_is_a_dead_letter_again(self, store: Store) -> None:
        qid = filled(store, *"ab")
        store.groups.open(GROUP, Style.WORK, Policy())
        buried(store, taken(store, qid, limit=1), "broken")
        (letter,) = store.dead_letters.list(GROUP, 10)
        assert store.dead_letters.replay([letter.id]) == 1
        store.queues.forget(GROUP, [qid])
        (again,) = store.dead_letters.list(GROUP, 10)
        assert (again.message, again.cause) == (letter.message, "the group left its topic")

    def test_a_topic_is_not_left_while_a_member_is_at_work_on_it(self, store: Store) -> None:
        one, two = filled(store, *"abc"), filled(store, *"abc", name="news")
        claim = taken(store, two)
        with pytest.raises(GroupInUse):
            store.queues.forget(GROUP, [one, two])
        assert acked(store, claim) == [True]
        owned = claimed(store, one)
        with pytest.raises(GroupInUse):
            store.queues.forget(GROUP, [one])
        store.queues.leave(GROUP, "anna", ["orders"])
        store.queues.forget(GROUP, [one, two])
        with pytest.raises(LeaseLost):
            store.queues.advance(owned, "anna", 1)
        assert store.overview.readings() == []

    def test_a_topic_is_not_left_while_a_transaction_is_bound_to_it(self, store: Store) -> None:
        qid = filled(store, *"abc")
        bind(store, opened(store, new_group(store, "producers")), taken(store, qid, limit=1))
        with pytest.raises(GroupInUse):
            store.queues.forget(GROUP, [qid])
