"""What every store promises of groups that keep order: nothing is handed out while something before it has its key."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from threading import Lock

import pytest

from tests.contracts.claiming import (
    CROWD,
    GROUP,
    LAPSE,
    MOMENT,
    acked,
    buried,
    crowded,
    due,
    filled,
    offsets,
    take,
    until_none,
)
from tests.contracts.samples import drain, new_group, new_queues, published, row
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.consume.claim import Claim, Policy, Style, Unread
from txsaga.store.store import Store


class OrderContract:
    """Lines of messages, as the port `Claims` promises them."""

    def test_unread_messages_are_found_by_turns(self, store: Store) -> None:
        qids = new_queues(store, count=2)
        published(store, new_group(store), *(row(qid, *"abc") for qid in qids))
        drain(store)
        store.queues.create_cursors(GROUP, dict.fromkeys(qids, 0))
        one, two = qids
        assert store.claims.unread(GROUP, qids, 0, 2, 10) == Unread(one, 0, 2)
        assert store.claims.unread(GROUP, qids, one, 9, 10) == Unread(two, 0, 3)
        assert store.claims.unread(GROUP, qids, two, 9, 10) == Unread(one, 0, 3)
        assert store.claims.unread("mail", qids, 0, 2, 10) is None

    def test_messages_are_lined_up_once(self, store: Store) -> None:
        qid = filled(store, *"abc")
        found = Unread(qid, 0, 2)
        assert store.claims.line_up(GROUP, found, [1, None])
        assert not store.claims.line_up(GROUP, found, [1, None])
        assert not store.claims.line_up(GROUP, Unread(qid, 1, 3), [None, 1])
        assert store.claims.unread(GROUP, [qid], 0, 9, 10) == Unread(qid, 2, 3)
        assert offsets(*due(store, qid)) == [0, 1]
        assert take(store, qid) is not None

    def test_of_rivals_one_lines_up(self, store: Store) -> None:
        qid = filled(store, *"abcd")
        found = Unread(qid, 0, 4)
        works = [partial(store.claims.line_up, GROUP, found, [1, 2, None, None])] * CROWD
        assert sorted(crowded(*works)) == [False] * (CROWD - 1) + [True]
        assert offsets(*due(store, qid)) == [0, 1, 2, 3]

    def test_a_line_is_bounded(self, store: Store) -> None:
        qid = filled(store, *"abcdef")
        lined_up(store, qid, [1, 1, 1])
        assert store.claims.unread(GROUP, [qid], 0, 2, 3) is None
        assert store.claims.unread(GROUP, [qid], 0, 2, 4) == Unread(qid, 3, 5)
        assert acked(store, *due(store, qid)) == [True]
        assert store.claims.unread(GROUP, [qid], 0, 2, 3) == Unread(qid, 3, 5)

    @pytest.mark.req("RMQ-63")
    def test_a_message_waits_for_what_has_its_key_and_its_neighbours_go_on(self, store: Store) -> None:
        qid = filled(store, *"abcdef")
        lined_up(store, qid, [7, 7, 8, None, 8, None])
        first = due(store, qid)
        assert offsets(*first) == [0, 2, 3, 5]
        assert due(store, qid) == []
        assert all(acked(store, *first))
        assert offsets(*due(store, qid)) == [1, 4]

    def test_a_message_that_is_put_back_holds_up_its_key(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abc")
        lined_up(store, qid, [7, 7, 8])
        seven, eight = due(store, qid)
        store.claims.put_back(seven, timedelta(seconds=IN_TIME), "broken")
        assert acked(store, eight) == [True]
        assert due(store, qid) == []
        later(OVER)
        (again,) = due(store, qid)
        assert (again.base, again.attempts) == (0, 2)
        assert acked(store, again) == [True]
        assert offsets(*due(store, qid)) == [1]

    def test_a_message_that_ran_out_comes_before_what_waits_for_it(self, store: Store, later: Later) -> None:
        qid = filled(store, *"ab")
        lined_up(store, qid, [7, 7])
        (lost,) = due(store, qid, seconds=MOMENT)
        later(LAPSE)
        (again,) = due(store, qid)
        assert (again.base, again.attempts) == (0, 2)
        assert acked(store, lost, again) == [False, True]
        (next_one,) = due(store, qid)
        assert (next_one.base, next_one.attempts) == (1, 1)

    def test_a_message_that_is_given_back_keeps_its_place(self, store: Store) -> None:
        qid = filled(store, *"ab")
        lined_up(store, qid, [7, 7])
        store.claims.give_back(due(store, qid)[0])
        (again,) = due(store, qid)
        assert (again.base, again.attempts) == (0, 1)

    def test_what_is_buried_holds_up_nobody(self, store: Store) -> None:
        qid = filled(store, *"abc")
        lined_up(store, qid, [7, 7, 7])
        buried(store, due(store, qid)[0])
        (second,) = due(store, qid)
        assert second.base == 1
        store.claims.drop(second)
        assert offsets(*due(store, qid)) == [2]

    def test_what_is_replayed_holds_up_nobody_and_waits_for_nobody(self, store: Store) -> None:
        qid = filled(store, *"abc")
        lined_up(store, qid, [7, 7, 7])
        first = due(store, qid)[0]
        buried(store, first)
        (second,) = due(store, qid)
        (letter,) = store.dead_letters.list(None, 1)
        store.groups.open(GROUP, Style.WORK, Policy())
        store.dead_letters.replay([letter.id])
        (again,) = due(store, qid)
        assert (again.base, acked(store, second)) == (0, [True])
        assert offsets(*due(store, qid)) == [2]

    def test_keys_of_other_queues_and_groups_hold_up_nobody(self, store: Store) -> None:
        one, two = filled(store, "a", name="orders"), filled(store, "b", name="news")
        store.queues.create_cursors("mail", {one: 0})
        lined_up(store, one, [7])
        lined_up(store, two, [7])
        assert store.claims.line_up("mail", Unread(one, 0, 1), [7])
        assert len(due(store, one, two)) == 2

    @pytest.mark.req("RMQ-63")
    def test_a_crowd_works_off_each_key_in_order(self, store: Store, later: Later) -> None:
        qid, keys = filled(store, *(str(n) for n in range(60))), [n * 7 % 5 for n in range(60)]
        seen, guard = list[int](), Lock()

        def step(member: str) -> Sequence[Claim]:
            claims = due(store, qid, limit=4, member=member)
            if not claims and (found := store.claims.unread(GROUP, [qid], 0, 8, 20)) is not None:
                store.claims.line_up(GROUP, found, keys[found.start : found.end])
            for claim in claims:
                if claim.attempts == 1 and claim.base % 10 == 0:
                    store.claims.put_back(claim, timedelta(0), "broken")
                    continue
                with guard:
                    seen.append(claim.base)
                assert acked(store, claim) == [True]
            return claims

        crowded(*(partial(until_none, partial(step, f"member-{n}")) for n in range(CROWD)))
        until_none(partial(step, "last"))
        for key in range(5):
            of_key = [offset for offset in range(60) if keys[offset] == key]
            assert [offset for offset in seen if keys[offset] == key] == of_key


def lined_up(store: Store, qid: int, keys: Sequence[int | None]) -> None:
    """Put the first unread messages of a queue in line."""
    found = store.claims.unread(GROUP, [qid], 0, len(keys), 1000)
    assert found is not None
    assert store.claims.line_up(GROUP, found, keys)
