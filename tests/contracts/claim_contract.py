"""What every store promises of claims: one member has a message, until it is done or the time is over."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from tests.contracts.claiming import (
    CROWD,
    GROUP,
    HOUR,
    LAPSE,
    MOMENT,
    acked,
    crowded,
    due,
    filled,
    offsets,
    one_due,
    take,
    taken,
    until_none,
)
from tests.contracts.samples import drain, new_group, new_queues, published, row
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.consume.claim import MOST, Claim, ClaimHold
from txsaga.errors import ClaimLost
from txsaga.store.store import Store


class ClaimContract:
    """Taking and acknowledging, as the port `Claims` promises them."""

    def test_new_messages_are_claimed_in_their_order_up_to_a_limit(self, store: Store) -> None:
        qid = filled(store, *"abcde")
        first, second = taken(store, qid, limit=3), taken(store, qid, limit=3)
        assert (first.group, first.qid, first.base, first.size, first.open) == (GROUP, qid, 0, 3, 0b111)
        assert (offsets(first), offsets(second)) == ([0, 1, 2], [3, 4])
        assert (first.attempts, second.attempts, first.copy) == (1, 1, None)
        assert take(store, qid) is None

    def test_no_claim_is_larger_than_its_mask(self, store: Store) -> None:
        qid = filled(store, *map(str, range(MOST + 5)))
        claims = [taken(store, qid, limit=1000), taken(store, qid, limit=1000)]
        assert [claim.size for claim in claims] == [MOST, 5]
        assert offsets(*claims) == list(range(MOST + 5))
        assert acked(store, *claims) == [True, True]

    def test_queues_take_turns(self, store: Store) -> None:
        qids = new_queues(store, count=3)
        published(store, new_group(store), *(row(qid, *"ab") for qid in qids))
        drain(store)
        store.queues.create_cursors(GROUP, dict.fromkeys(qids, 0))
        order, after = [], qids[0]
        while (claim := take(store, *qids, after=after, limit=1)) is not None:
            order.append((claim.qid, claim.base))
            after = claim.qid
        one, two, three = qids
        assert order == [(two, 0), (three, 0), (one, 0), (two, 1), (three, 1), (one, 1)]

    def test_only_queues_that_are_asked_for_and_have_a_cursor_are_read(self, store: Store) -> None:
        one, two = filled(store, "a", name="orders"), filled(store, "b", name="news")
        assert taken(store, two).qid == two
        assert store.claims.take_new("mail", [one], 0, 1, ClaimHold("anna", HOUR)) is None
        assert taken(store, one, two).qid == one

    def test_groups_do_not_share_their_messages(self, store: Store) -> None:
        qid = filled(store, *"ab")
        store.queues.create_cursors("mail", {qid: 0})
        mine, theirs = taken(store, qid), store.claims.take_new("mail", [qid], 0, 60, ClaimHold("anna", HOUR))
        assert theirs is not None
        assert offsets(mine) == offsets(theirs) == [0, 1]
        assert acked(store, mine, theirs) == [True, True]

    def test_what_a_member_holds_is_nobody_elses(self, store: Store) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid, limit=1)
        assert due(store, qid) == []
        assert offsets(taken(store, qid, member="berta")) == [1]
        assert acked(store, claim) == [True]

    def test_what_is_acknowledged_never_comes_again(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abc")
        assert acked(store, taken(store, qid, seconds=IN_TIME)) == [True]
        later(OVER)
        assert (due(store, qid), take(store, qid)) == ([], None)

    def test_part_of_a_claim_may_be_acknowledged(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abcd")
        claim = taken(store, qid, seconds=IN_TIME)
        assert acked(store, claim.only(1), claim.only(2)) == [True, True]
        later(OVER)
        assert [offsets(one_due(store, qid)) for _ in range(2)] == [[0], [3]]
        assert due(store, qid) == []

    def test_a_late_acknowledgement_is_refused_and_the_message_comes_again(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        claim = taken(store, qid, seconds=MOMENT)
        later(LAPSE)
        assert [type(answer) for answer in store.claims.ack([claim])] == [ClaimLost]
        fresh = one_due(store, qid)
        assert acked(store, claim, fresh) == [False, True]

    def test_of_many_acknowledgements_the_lost_one_alone_is_refused(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abcd")
        lost = taken(store, qid, limit=1, seconds=MOMENT)
        held = [taken(store, qid, limit=1) for _ in range(2)]
        later(LAPSE)
        assert acked(store, held[0], lost, held[1]) == [True, False, True]
        assert offsets(one_due(store, qid)) == [0]
        assert offsets(taken(store, qid)) == [3]

    def test_an_acknowledgement_counts_once(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        assert acked(store, claim.only(0)) == [True]
        assert acked(store, claim.only(0), claim.only(1)) == [False, True]
        assert acked(store, claim) == [False]  # of what is left all is done, but that was not all
        assert acked(store, claim.only(2)) == [False]

    def test_nothing_may_be_acknowledged(self, store: Store) -> None:
        assert list(store.claims.ack([])) == []

    def test_the_same_claim_twice_in_one_call_is_one_claim(self, store: Store) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid)
        assert acked(store, claim, claim.only(1)) == [True, True]
        assert acked(store, claim) == [False]

    def test_a_receipt_is_good_for_its_own_claim_only(self, store: Store) -> None:
        qid = filled(store, *"ab")
        one, two = taken(store, qid, limit=1), taken(store, qid, limit=1)
        assert one.receipt != two.receipt
        assert acked(store, one._replace(receipt=two.receipt)) == [False]
        assert acked(store, one, two) == [True, True]

    def test_a_claim_is_held_for_longer_from_now_on(self, store: Store, later: Later) -> None:
        qid = filled(store, *"ab")
        short, kept = taken(store, qid, limit=1, seconds=IN_TIME), taken(store, qid, seconds=IN_TIME)
        store.claims.extend(kept, timedelta(seconds=HOUR))
        store.claims.extend(kept, timedelta(seconds=HOUR / 2))
        later(OVER)
        assert acked(store, short, kept) == [False, True]

    def test_extending_may_shorten_a_claim(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        claim = taken(store, qid)
        store.claims.extend(claim, timedelta(seconds=MOMENT))
        later(LAPSE)
        assert acked(store, claim) == [False]
        assert offsets(one_due(store, qid)) == [0]

    def test_one_message_is_held_apart_from_the_others_of_its_run(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abc")
        run = taken(store, qid, seconds=IN_TIME)
        alone = store.claims.extend_alone(run.only(1), timedelta(seconds=HOUR))
        with pytest.raises(ClaimLost):
            store.claims.extend_alone(run.only(1), timedelta(seconds=HOUR))
        assert acked(store, run.only(0)) == [True]
        later(OVER)
        assert acked(store, run.only(2), run.only(1), alone) == [False, False, True]

    def test_a_message_that_is_held_anew_has_a_new_receipt(self, store: Store) -> None:
        qid = filled(store, "a")
        first = taken(store, qid)
        second = store.claims.extend_alone(first, timedelta(seconds=HOUR))
        assert acked(store, first, second) == [False, True]

    def test_a_lost_claim_is_not_held_for_longer(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abc")
        over, done = taken(store, qid, limit=1, seconds=MOMENT), taken(store, qid, limit=1)
        run = taken(store, qid)
        assert acked(store, done, run.only(2)) == [True, True]
        later(LAPSE)
        for claim in (over, done, run.only(2)):
            with pytest.raises(ClaimLost):
                store.claims.extend(claim, timedelta(hours=1))
        assert offsets(one_due(store, qid)) == [0]

    def test_of_a_crowd_each_message_goes_to_one(self, store: Store) -> None:
        qids = new_queues(store, count=3)
        texts = [str(n) for n in range(40)]
        published(store, new_group(store), *(row(qid, *texts) for qid in qids))
        drain(store)
        store.queues.create_cursors(GROUP, dict.fromkeys(qids, 0))

        def step(member: str) -> list[tuple[int, int]]:
            claim = take(store, *qids, limit=3, member=member)
            if claim is None:
                return []
            assert acked(store, claim) == [True]
            return [(claim.qid, offset) for offset in claim.offsets()]

        works = [partial(until_none, partial(step, f"member-{n}")) for n in range(CROWD)]
        got = [each for of_one in crowded(*works) for each in of_one]
        got += until_none(partial(step, "last"))
        assert sorted(got) == [(qid, offset) for qid in qids for offset in range(len(texts))]

    def test_members_of_a_crowd_that_end_one_run_do_not_disturb_each_other(self, store: Store) -> None:
        for turn in range(6):
            qid = filled(store, *"abcdefgh", name=f"turn-{turn}")
            claim = taken(store, qid)
            ends: list[Callable[[Claim], object]] = [
                partial(acked, store),
                partial(store.claims.put_back, delay=timedelta(0), cause="again"),
                partial(acked, store),
                store.claims.give_back,
            ]
            works = [partial(ends[offset % 4], claim.only(offset)) for offset in claim.offsets()]
            assert crowded(*works) == [[True], None, [True], None] * 2
            assert sorted(offsets(*until_none(partial(due, store, qid)))) == [1, 3, 5, 7]
