"""What every store promises of messages that come again: put back, given back, or lost with their member."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from tests.contracts.claiming import (
    CROWD,
    LAPSE,
    MOMENT,
    acked,
    buried,
    crowded,
    due,
    filled,
    offsets,
    one_due,
    take,
    taken,
    until_none,
)
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.errors import ClaimLost
from txsaga.store.store import Store

AT_ONCE = timedelta(0)


class RedeliveryContract:
    """What is taken again, as the port `Claims` promises it."""

    def test_a_message_that_is_put_back_comes_again_after_its_delay(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        claim = taken(store, qid)
        store.claims.put_back(claim, timedelta(seconds=IN_TIME), "broken")
        assert due(store, qid) == []
        later(OVER)
        fresh = one_due(store, qid)
        assert (fresh.base, fresh.size, fresh.attempts) == (0, 1, 2)
        assert acked(store, claim, fresh) == [False, True]

    @pytest.mark.req("IBM-61")
    def test_attempts_count_deliveries(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        claim, seen = taken(store, qid), []
        for turn in range(4):
            seen.append(claim.attempts)
            if turn % 2:
                store.claims.put_back(claim, AT_ONCE, "broken")
            else:
                store.claims.extend(claim, timedelta(seconds=MOMENT))
                later(LAPSE)
            claim = one_due(store, qid)
        assert [*seen, claim.attempts] == [1, 2, 3, 4, 5]

    def test_what_is_put_back_is_lost_to_its_member(self, store: Store) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid)
        store.claims.put_back(claim.only(0), AT_ONCE, "broken")
        assert acked(store, claim.only(0)) == [False]
        for call in (
            lambda: store.claims.put_back(claim.only(0), AT_ONCE, "again"),
            lambda: store.claims.drop(claim.only(0)),
            lambda: store.claims.extend(claim.only(0), AT_ONCE),
            lambda: buried(store, claim.only(0)),
        ):
            with pytest.raises(ClaimLost):
                call()
        store.claims.give_back(claim.only(0))
        assert offsets(one_due(store, qid)) == [0]
        assert due(store, qid) == []
        assert acked(store, claim.only(1)) == [True]

    def test_a_message_that_leaves_its_run_leaves_its_neighbours(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abcde")
        claim = taken(store, qid)
        store.claims.put_back(claim.only(1), AT_ONCE, "broken")
        buried(store, claim.only(2))
        store.claims.drop(claim.only(3))
        assert offsets(one_due(store, qid)) == [1]
        assert due(store, qid) == []
        store.claims.extend(claim, timedelta(seconds=IN_TIME))
        assert acked(store, claim.only(0)) == [True]
        later(OVER)
        assert offsets(one_due(store, qid)) == [4]
        assert due(store, qid) == []

    def test_a_run_that_ran_out_comes_apart(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abcd")
        run = taken(store, qid, seconds=MOMENT)
        later(LAPSE)
        first = one_due(store, qid)
        assert acked(store, run.only(3)) == [False]
        rest = [one_due(store, qid) for _ in range(3)]
        assert offsets(first, *rest) == [0, 1, 2, 3]
        assert {claim.attempts for claim in (first, *rest)} == {2}
        assert due(store, qid) == []
        assert acked(store, *rest, first) == [True] * 4

    def test_many_runs_that_ran_out_come_apart(self, store: Store, later: Later) -> None:
        qid = filled(store, *(str(n) for n in range(300)))
        runs = [taken(store, qid, limit=3, seconds=MOMENT) for _ in range(100)]
        later(LAPSE)
        claims = until_none(partial(due, store, qid), times=1)
        assert sorted(offsets(*claims)) == offsets(*runs)
        assert {(claim.open.bit_count(), claim.attempts) for claim in claims} == {(1, 2)}

    def test_what_comes_again_comes_alone(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        for offset in (2, 0, 1):
            store.claims.put_back(claim.only(offset), AT_ONCE, "broken")
        assert sorted(offsets(*(one_due(store, qid) for _ in range(3)))) == [0, 1, 2]
        assert due(store, qid) == []

    def test_what_is_given_back_comes_at_once_as_if_it_had_not_been_taken(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        store.claims.give_back(claim)
        assert acked(store, claim) == [False]
        again = due(store, qid)
        assert offsets(*again) == [0, 1, 2]
        assert {each.attempts for each in again} == {1}
        assert acked(store, *again) == [True] * 3

    def test_whoever_asks_for_few_is_given_few(self, store: Store) -> None:
        qid = filled(store, *"abcde")
        store.claims.give_back(taken(store, qid))
        assert [offsets(*due(store, qid, limit=2)) for _ in range(4)] == [[0, 1], [2, 3], [4], []]

    def test_part_of_a_run_may_be_given_back(self, store: Store) -> None:
        qid = filled(store, *"abcd")
        claim = taken(store, qid)
        assert acked(store, claim.only(0)) == [True]
        store.claims.give_back(claim.only(0, 2))  # what is done stays done
        again = due(store, qid)
        assert (offsets(*again), again[0].attempts) == ([2], 1)
        assert acked(store, claim.only(1), claim.only(2), claim.only(3), *again) == [True, False, True, True]
        assert due(store, qid) == []

    def test_what_was_given_back_once_counts_what_it_went_through(self, store: Store) -> None:
        qid = filled(store, "a")
        store.claims.put_back(taken(store, qid), AT_ONCE, "broken")
        store.claims.give_back(one_due(store, qid))
        assert one_due(store, qid).attempts == 2

    def test_giving_back_what_is_lost_changes_nothing(self, store: Store, later: Later) -> None:
        qid = filled(store, *"ab")
        over, done = taken(store, qid, limit=1, seconds=MOMENT), taken(store, qid)
        assert acked(store, done) == [True]
        later(LAPSE)
        fresh = one_due(store, qid)
        for claim in (over, done):
            store.claims.give_back(claim)
        assert due(store, qid) == []
        assert acked(store, fresh) == [True]

    def test_what_waits_longest_comes_first_and_what_was_never_taken_is_not_mixed_in(self, store: Store) -> None:
        one, two = filled(store, *"ab", name="orders"), filled(store, *"cd", name="news")
        run = taken(store, one)
        store.claims.put_back(run.only(1), AT_ONCE, "broken")
        store.claims.give_back(taken(store, two))
        assert (due(store, two, limit=1)[0].qid, due(store, one)[0].base) == (two, 1)
        assert offsets(*due(store, one, two)) == [1]
        store.claims.put_back(run.only(0), AT_ONCE, "broken")
        assert [claim.qid for claim in due(store, one, two)] == [one]

    def test_a_dropped_message_never_comes_again(self, store: Store, later: Later) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid, seconds=IN_TIME)
        store.claims.drop(claim.only(0))
        later(OVER)
        assert offsets(one_due(store, qid)) == [1]
        assert (due(store, qid), take(store, qid), store.dead_letters.list(None, 10)) == ([], None, [])

    def test_of_a_crowd_each_message_that_comes_again_goes_to_one(self, store: Store, later: Later) -> None:
        qid = filled(store, *(str(n) for n in range(48)))
        for _ in range(2):  # runs that run out
            taken(store, qid, limit=8, seconds=MOMENT)
        back = taken(store, qid, limit=16)
        for offset in back.offsets():
            store.claims.put_back(back.only(offset), AT_ONCE, "broken")
        store.claims.give_back(taken(store, qid, limit=16))
        later(LAPSE)
        works = [partial(until_none, partial(due, store, qid, limit=4, member=f"m-{n}")) for n in range(CROWD)]
        claims = [claim for of_one in crowded(*works) for claim in of_one]
        assert sorted(offsets(*claims)) == list(range(48))
        assert all(claim.attempts == (1 if claim.base >= 32 else 2) for claim in claims)
        assert all(acked(store, *claims))
