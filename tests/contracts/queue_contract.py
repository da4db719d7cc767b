"""What every store promises of consumer groups: one owner per queue, and a fence against the one before."""

# The name of a test is a sentence.

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.contracts.samples import LONG, claimed, drain, new_group, new_queues, position, published, row
from tests.contracts.timing import Later
from txsaga.errors import LeaseLost
from txsaga.store.store import Store

SHORT = timedelta(seconds=0.5)
LAPSE = 0.7


class QueueContract:
    """Members and cursors, as the port `Queues` promises them."""

    def test_live_members_are_listed_by_name_group_and_topic(self, store: Store) -> None:
        store.queues.renew("mail", "carl", ["orders"], LONG)
        store.queues.renew("billing", "berta", ["orders", "news"], LONG)
        store.queues.renew("billing", "dora", ["letters"], LONG)
        assert renewed(store, "anna") == ["anna", "berta"]
        assert renewed(store, "berta", "news", "orders") == ["berta", "anna", "berta"]

    def test_a_member_that_left_or_fell_silent_is_not_listed(self, store: Store, later: Later) -> None:
        for member, ttl in (("anna", LONG), ("berta", LONG), ("carl", SHORT), ("dora", SHORT)):
            store.queues.renew("billing", member, ["orders"], ttl)
        store.queues.leave("billing", "berta", ["orders"])
        renewed(store, "dora")
        later(LAPSE)
        assert renewed(store, "anna") == ["anna", "dora"]

    @pytest.mark.conf("BRK-23")
    def test_cursors_are_created_once(self, store: Store) -> None:
        one, two = ahead(store, "orders"), ahead(store, "news")
        store.queues.create_cursors("billing", {one: 3})
        store.queues.create_cursors("billing", {one: 9, two: 4})
        store.queues.create_cursors("mail", {one: 5})
        assert (position(store, one), position(store, two)) == (3, 4)
        assert position(store, one, group="mail") == 5

    def test_a_queue_is_acquired_where_its_cursor_stands(self, store: Store) -> None:
        (qid,) = new_queues(store)
        renewed(store, "anna")
        assert store.queues.acquire("billing", "anna", qid) is None
        store.queues.create_cursors("billing", {qid: 7})
        claim = store.queues.acquire("billing", "anna", qid)
        assert claim is not None
        assert (claim.group, claim.qid, claim.offset) == ("billing", qid, 7)

    def test_a_queue_of_a_live_member_is_nobody_elses(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = claimed(store, qid)
        renewed(store, "berta")
        assert store.queues.acquire("billing", "berta", qid) is None
        assert store.queues.advance(claim, "anna", 1).offset == 1

    def test_groups_do_not_share_their_queues(self, store: Store) -> None:
        (qid,) = new_queues(store)
        store.queues.advance(claimed(store, qid), "anna", 5)
        other = claimed(store, qid, group="mail", member="berta")
        assert other.offset == 0
        assert position(store, qid) == 5

    @pytest.mark.conf("BRK-24")
    def test_a_cursor_moves_and_is_found_there(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = store.queues.advance(claimed(store, qid), "anna", 5)
        assert claim.offset == 5
        assert store.queues.advance(claim, "anna", 8).offset == 8
        assert position(store, qid) == 8

    @pytest.mark.rule("R14")
    def test_a_move_whose_answer_was_lost_is_made_again(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = claimed(store, qid)
        for _ in range(2):
            assert store.queues.advance(claim, "anna", 5) == claim._replace(offset=5)
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 6)
        assert position(store, qid) == 5

    def test_a_lapsed_lease_hands_the_queue_over_and_fences_its_owner(self, store: Store, later: Later) -> None:
        (qid,) = new_queues(store)
        stale = claimed(store, qid)
        store.queues.renew("billing", "anna", ["orders"], SHORT)
        later(LAPSE)
        fresh = claimed(store, qid, member="berta")
        assert fresh.epoch > stale.epoch
        with pytest.raises(LeaseLost):
            store.queues.advance(stale, "anna", 1)
        assert position(store, qid) == 0
        assert store.queues.advance(fresh, "berta", 2).offset == 2

    def test_a_stale_epoch_does_not_move_the_cursor_of_the_same_member(self, store: Store) -> None:
        (qid,) = new_queues(store)
        stale = claimed(store, qid)
        store.queues.release("billing", "anna", qid)
        fresh = claimed(store, qid)
        assert fresh.epoch > stale.epoch
        with pytest.raises(LeaseLost):
            store.queues.advance(stale, "anna", 1)

    def test_a_claim_is_its_members_alone(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = claimed(store, qid)
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "berta", 1)
        store.queues.release("billing", "berta", qid)
        assert store.queues.advance(claim, "anna", 1).offset == 1

    @pytest.mark.parametrize("way", ["release", "leave"])
    def test_a_queue_that_was_given_back_is_free_at_once(self, store: Store, way: str) -> None:
        (qid,) = new_queues(store)
        claim = claimed(store, qid)
        if way == "release":
            store.queues.release("billing", "anna", qid)
        else:
            store.queues.leave("billing", "anna", ["orders"])
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 1)
        assert claimed(store, qid, member="berta").epoch > claim.epoch

    def test_whoever_leaves_a_topic_keeps_the_others(self, store: Store) -> None:
        one, two = new_queues(store, "orders")[0], new_queues(store, "news")[0]
        store.queues.create_cursors("billing", {one: 0, two: 0})
        renewed(store, "anna", "news", "orders")
        claims = [store.queues.acquire("billing", "anna", qid) for qid in (one, two)]
        store.queues.leave("billing", "anna", ["orders"])
        renewed(store, "berta", "news", "orders")
        assert store.queues.acquire("billing", "berta", one) is not None
        assert store.queues.acquire("billing", "berta", two) is None
        assert claims[1] is not None
        assert store.queues.advance(claims[1], "anna", 1).offset == 1

    def test_a_member_takes_queues_of_the_topics_that_it_reads_only(self, store: Store) -> None:
        one, two = new_queues(store, "orders")[0], new_queues(store, "news")[0]
        claimed(store, one)
        store.queues.create_cursors("billing", {two: 0})
        assert store.queues.acquire("billing", "anna", two) is None
        assert claimed(store, two, member="berta").offset == 0

    def test_of_rivals_one_gets_the_queue(self, store: Store) -> None:
        qids = new_queues(store, count=8)
        store.queues.create_cursors("billing", dict.fromkeys(qids, 0))
        members = ["anna", "berta", "carl"]
        for member in members:
            renewed(store, member)

        def take_all(member: str) -> set[int]:
            return {qid for qid in qids if store.queues.acquire("billing", member, qid) is not None}

        with ThreadPoolExecutor(3) as threads:
            taken = list(threads.map(take_all, members))
        assert sorted(qid for each in taken for qid in each) == sorted(qids)


def renewed(store: Store, member: str, *topics: str) -> list[str]:
    """Renew the leases of a member; return who lives, topic by topic."""
    names = topics or ("orders",)
    live = store.queues.renew("billing", member, names, LONG)
    return [name for topic in names for name in live[topic]]


def ahead(store: Store, topic: str) -> int:
    """Create a topic of one queue with some messages in it, and return the queue."""
    (qid,) = new_queues(store, topic)
    published(store, new_group(store), row(qid, *"abcdefghij"))
    drain(store)
    return qid
