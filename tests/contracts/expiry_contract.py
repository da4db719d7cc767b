"""What every store promises of groups that nobody reads: they go when they say so, and nobody at work loses a thing."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.binding_contract import bind
from tests.contracts.claiming import GROUP, LAPSE, MOMENT, acked, buried, due, filled, one_due, taken
from tests.contracts.samples import LONG, ROLLBACK, claimed, new_group, opened, settle
from tests.contracts.timing import Later, Unseen
from txsaga.consume.claim import Policy, Style
from txsaga.core.records import Intent
from txsaga.errors import UnknownGroup
from txsaga.store.store import Store

WEEK = timedelta(days=7)


def registered(store: Store, style: Style = Style.WORK, expires: timedelta | None = WEEK) -> None:
    """Register the group of these tests."""
    store.groups.open(GROUP, style, Policy(expires=expires))


@pytest.mark.rule("R13")
class ExpiryContract:
    """`ConsumerGroups.expire`, as the port promises it."""

    @pytest.mark.parametrize("style", Style)
    def test_a_group_that_nobody_was_seen_in_goes_with_its_cursors(
        self, store: Store, unseen: Unseen, style: Style
    ) -> None:
        filled(store, "a")
        registered(store, style)
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]
        assert store.groups.find(GROUP) is None
        assert list(store.overview.readings()) == []
        assert store.groups.expire() == []

    def test_what_waited_for_it_does_not_come_to_a_new_group_of_its_name(
        self, store: Store, unseen: Unseen, later: Later
    ) -> None:
        qid = filled(store, "a")
        registered(store)
        taken(store, qid, seconds=MOMENT)
        later(LAPSE)
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]
        registered(store)
        assert due(store, qid) == []
        store.queues.create_cursors(GROUP, {qid: 0})
        assert acked(store, taken(store, qid)) == [True]

    def test_what_was_replayed_and_did_not_come_is_a_dead_letter_again(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a")
        registered(store)
        buried(store, taken(store, qid))
        (letter,) = store.dead_letters.list(GROUP, 10)
        assert store.dead_letters.replay([letter.id]) == 1
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]
        (again,) = store.dead_letters.list(GROUP, 10)
        assert (again.message, again.cause) == (letter.message, "the group expired")
        assert store.dead_letters.replay([again.id]) == 0
        registered(store)
        store.queues.create_cursors(GROUP, {qid: 1})
        assert store.dead_letters.replay([again.id]) == 1
        assert len(due(store, qid)) == 1

    def test_one_that_was_seen_in_time_stays(self, store: Store, unseen: Unseen) -> None:
        registered(store)
        unseen(GROUP, WEEK - LONG)
        assert store.groups.expire() == []

    @pytest.mark.parametrize("sign", ["touch", "open"])
    def test_a_sign_of_life_begins_its_time_anew(self, store: Store, unseen: Unseen, sign: str) -> None:
        registered(store)
        unseen(GROUP, 2 * WEEK)
        if sign == "touch":
            assert store.groups.touch(GROUP, Style.WORK) == store.groups.find(GROUP)
        else:
            registered(store)
        assert store.groups.expire() == []

    def test_one_that_never_expires_stays(self, store: Store, unseen: Unseen) -> None:
        registered(store, expires=None)
        unseen(GROUP, 1_000 * WEEK)
        assert store.groups.expire() == []

    def test_only_the_group_that_is_over_goes(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a")
        registered(store)
        store.groups.open("mail", Style.WORK, Policy(expires=None))
        store.queues.create_cursors("mail", {qid: 0})
        unseen(GROUP, 2 * WEEK)
        unseen("mail", 2 * WEEK)
        assert store.groups.expire() == [GROUP]
        assert [reading.group for reading in store.overview.readings()] == ["mail"]

    def test_a_member_whose_group_expired_is_told(self, store: Store, unseen: Unseen) -> None:
        registered(store)
        unseen(GROUP, 2 * WEEK)
        store.groups.expire()
        with pytest.raises(UnknownGroup, match=GROUP):
            store.groups.touch(GROUP, Style.WORK)

    def test_a_living_member_keeps_its_group(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a")
        registered(store, Style.STREAM)
        unseen(GROUP, 2 * WEEK)
        claimed(store, qid)
        assert store.groups.expire() == []
        store.queues.leave(GROUP, "anna", ["orders"])
        assert store.groups.expire() == []  # it was at work a moment ago
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]

    def test_messages_in_hands_keep_their_group(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a")
        registered(store)
        unseen(GROUP, 2 * WEEK)
        claim = taken(store, qid)
        assert store.groups.expire() == []
        assert acked(store, claim) == [True]
        assert store.groups.expire() == []  # it was at work a moment ago
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]

    def test_offsets_that_are_bound_keep_their_group(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a")
        registered(store, Style.STREAM)
        unseen(GROUP, 2 * WEEK)
        claim, life = claimed(store, qid), opened(store, new_group(store, "producers"))
        with store.ledgers.open() as ledger:
            intent = Intent(group=GROUP, qid=qid, start=0, end=1, epoch=claim.epoch, txid=life.txid)
            ledger.intend(intent, "anna")
        store.queues.leave(GROUP, "anna", ["orders"])
        assert store.groups.expire() == []
        with store.ledgers.open() as ledger:
            ledger.apply_intents(life.txid, ROLLBACK, why="test")
        settle(store, life, ROLLBACK)
        assert store.groups.expire() == []  # it was at work a moment ago
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]

    def test_messages_that_are_bound_keep_their_group(self, store: Store, unseen: Unseen) -> None:
        qid, life = filled(store, "a"), opened(store, new_group(store))
        registered(store)
        bind(store, life, taken(store, qid))
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == []
        settle(store, life, ROLLBACK)
        assert store.groups.expire() == []  # it was at work a moment ago
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]

    def test_dead_letters_stay_and_one_that_is_replayed_keeps_the_group(self, store: Store, unseen: Unseen) -> None:
        qid = filled(store, "a", "b")
        registered(store)
        buried(store, taken(store, qid, limit=1))
        (letter,) = store.dead_letters.list(GROUP, 10)
        unseen(GROUP, 2 * WEEK)
        store.dead_letters.replay([letter.id])
        assert store.groups.expire() == []
        buried(store, one_due(store, qid))
        unseen(GROUP, 2 * WEEK)
        assert store.groups.expire() == [GROUP]
        assert len(store.dead_letters.list(GROUP, 10)) == 1
