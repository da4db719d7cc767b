"""What every store promises of consumer groups: one owner per queue, and a fence against the one before."""

# The name of a test is a sentence.
# ruff: noqa: D102

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from txsaga.errors import LeaseLost
from txsaga.ports.store import Store
from txsaga.testing.samples import LONG, claimed, new_queues
from txsaga.testing.timing import Later

SHORT = timedelta(seconds=0.5)
LAPSE = 0.7


class QueueContract:
    """Members and cursors, as the port `Queues` promises them."""

    def test_live_members_are_listed_by_name_and_group(self, store: Store) -> None:
        store.queues.renew("mail", "carl", LONG)
        store.queues.renew("billing", "berta", LONG)
        assert list(store.queues.renew("billing", "anna", LONG)) == ["anna", "berta"]
        assert list(store.queues.renew("billing", "berta", LONG)) == ["anna", "berta"]

    def test_a_member_that_left_or_fell_silent_is_not_listed(self, store: Store, later: Later) -> None:
        for member, ttl in (("anna", LONG), ("berta", LONG), ("carl", SHORT), ("dora", SHORT)):
            store.queues.renew("billing", member, ttl)
        store.queues.leave("billing", "berta")
        store.queues.renew("billing", "dora", LONG)
        later(LAPSE)
        assert list(store.queues.renew("billing", "anna", LONG)) == ["anna", "dora"]

    def test_cursors_are_created_once(self, store: Store) -> None:
        one, two = new_queues(store, count=2)
        store.queues.create_cursors("billing", {one: 3})
        store.queues.create_cursors("billing", {one: 9, two: 4})
        store.queues.create_cursors("mail", {one: 5})
        assert store.queues.positions("billing", [one, two]) == {one: 3, two: 4}
        assert store.queues.positions("mail", [one, two]) == {one: 5}

    def test_a_queue_is_acquired_where_its_cursor_stands(self, store: Store) -> None:
        (qid,) = new_queues(store)
        store.queues.renew("billing", "anna", LONG)
        assert store.queues.acquire("billing", "anna", qid) is None
        store.queues.create_cursors("billing", {qid: 7})
        claim = store.queues.acquire("billing", "anna", qid)
        assert claim is not None
        assert (claim.group, claim.qid, claim.offset) == ("billing", qid, 7)

    def test_a_queue_of_a_live_member_is_nobody_elses(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = claimed(store, qid)
        store.queues.renew("billing", "berta", LONG)
        assert store.queues.acquire("billing", "berta", qid) is None
        assert store.queues.advance(claim, "anna", 1).offset == 1

    def test_groups_do_not_share_their_queues(self, store: Store) -> None:
        (qid,) = new_queues(store)
        store.queues.advance(claimed(store, qid), "anna", 5)
        other = claimed(store, qid, group="mail", member="berta")
        assert other.offset == 0
        assert store.queues.positions("billing", [qid]) == {qid: 5}

    def test_a_cursor_moves_and_is_found_there(self, store: Store) -> None:
        (qid,) = new_queues(store)
        claim = store.queues.advance(claimed(store, qid), "anna", 5)
        assert claim.offset == 5
        assert store.queues.advance(claim, "anna", 8).offset == 8
        assert store.queues.positions("billing", [qid]) == {qid: 8}

    def test_a_lapsed_lease_hands_the_queue_over_and_fences_its_owner(self, store: Store, later: Later) -> None:
        (qid,) = new_queues(store)
        stale = claimed(store, qid)
        store.queues.renew("billing", "anna", SHORT)
        later(LAPSE)
        fresh = claimed(store, qid, member="berta")
        assert fresh.epoch > stale.epoch
        with pytest.raises(LeaseLost):
            store.queues.advance(stale, "anna", 1)
        assert store.queues.positions("billing", [qid]) == {qid: 0}
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
            store.queues.leave("billing", "anna")
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 1)
        assert claimed(store, qid, member="berta").epoch > claim.epoch

    def test_of_rivals_one_gets_the_queue(self, store: Store) -> None:
        qids = new_queues(store, count=8)
        store.queues.create_cursors("billing", dict.fromkeys(qids, 0))
        members = ["anna", "berta", "carl"]
        for member in members:
            store.queues.renew("billing", member, LONG)

        def take_all(member: str) -> set[int]:
            return {qid for qid in qids if store.queues.acquire("billing", member, qid) is not None}

        with ThreadPoolExecutor(3) as threads:
            taken = list(threads.map(take_all, members))
        assert sorted(qid for each in taken for qid in each) == sorted(qids)

    def test_a_reset_moves_the_cursor_and_fences_its_owner(self, store: Store) -> None:
        one, two = new_queues(store, count=2)
        claims = [claimed(store, qid) for qid in (one, two)]
        store.queues.reset("billing", {one: 3})
        assert store.queues.positions("billing", [one, two]) == {one: 3, two: 0}
        with pytest.raises(LeaseLost):
            store.queues.advance(claims[0], "anna", 1)
        assert store.queues.advance(claims[1], "anna", 1).offset == 1
        assert claimed(store, one).offset == 3
