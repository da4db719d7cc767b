"""What every store promises of messages that failed to the end: moved in one step, looked at, replayed, purged."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import pytest

from tests.contracts.claiming import (
    CROWD,
    GROUP,
    LAPSE,
    MOMENT,
    acked,
    burial_of,
    buried,
    crowded,
    due,
    filled,
    one_due,
    read_one,
    take,
    taken,
)
from tests.contracts.samples import entries, new_queues, read
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.consume.claim import Claim, ClaimHold, Policy, Style
from txsaga.consume.dead_letter import DeadLetter
from txsaga.errors import ClaimLost
from txsaga.store.store import Store


class BurialContract:
    """Dead letters and backout queues, as the ports `Claims` and `DeadLetters` promise them."""

    @pytest.mark.req("IBM-62")
    def test_a_buried_message_is_a_dead_letter_and_comes_no_more(self, store: Store, later: Later) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid, seconds=IN_TIME)
        message = read_one(store, qid, 1)
        buried(store, claim.only(1), "no chair is left")
        (letter,) = store.dead_letters.list(None, 10)
        assert (letter.group, letter.topic, letter.queue, letter.offset) == (GROUP, "orders", 0, 1)
        assert (letter.attempts, letter.cause, letter.message) == (1, "no chair is left", message)
        assert store.dead_letters.get(letter.id) == letter
        assert acked(store, claim.only(0)) == [True]
        later(OVER)
        assert (due(store, qid), take(store, qid)) == ([], None)

    def test_a_replayed_message_may_lie_beside_itself(self, store: Store) -> None:
        qid = filled(store, *"abc")
        letter = laid_down(store, taken(store, qid, limit=1), "broken")
        store.queues.reset(GROUP, {qid: 0})  # the message is ahead of the group again
        assert store.dead_letters.replay([letter.id]) == 1
        run = taken(store, qid)
        copy = one_due(store, qid)
        assert (list(copy.offsets()), copy.copy) == ([0], letter.copy)
        assert list(run.offsets()) == [0, 1, 2]
        store.claims.put_back(copy, timedelta(0), "again")
        again = one_due(store, qid)
        assert again.copy == letter.copy
        store.claims.give_back(again)
        assert one_due(store, qid).copy == letter.copy

    def test_a_letter_whose_copy_still_waits_stays(self, store: Store) -> None:
        qid = filled(store, *"ab")
        first = taken(store, qid)
        letter, other = (laid_down(store, first.only(offset), "broken") for offset in (0, 1))
        store.queues.reset(GROUP, {qid: 0})
        run = taken(store, qid)
        assert store.dead_letters.replay([letter.id]) == 1
        again = laid_down(store, run.only(0), "the message itself")
        assert store.dead_letters.replay([again.id, other.id]) == 1
        assert [left.id for left in store.dead_letters.list(None, 10)] == [again.id]
        assert acked(store, *due(store, qid)) == [True, True]
        assert store.dead_letters.replay([again.id]) == 1

    def test_a_message_has_one_letter_however_often_it_dies(self, store: Store) -> None:
        qid = filled(store, "a")
        letter = laid_down(store, taken(store, qid), "broken")
        store.queues.reset(GROUP, {qid: 0})
        buried(store, taken(store, qid), "again")
        (again,) = store.dead_letters.list(None, 10)
        assert (again.id, again.cause) == (letter.id, "again")

    def test_a_letter_of_a_group_that_is_gone_stays(self, store: Store) -> None:
        qid = filled(store, "a")
        claim = taken(store, qid)._replace()
        letter = laid_down(store, claim, "broken")
        store.queues.create_cursors("nobody", {qid: 0})
        lost = store.claims.take_new("nobody", [qid], 0, 1, ClaimHold("anna", 60))
        assert lost is not None
        store.claims.bury(lost, burial_of(store, lost))
        (orphan,) = store.dead_letters.list("nobody", 10)
        assert store.dead_letters.replay([orphan.id, letter.id]) == 1
        assert [left.id for left in store.dead_letters.list(None, 10)] == [orphan.id]

    def test_what_was_only_taken_to_be_buried_was_not_delivered_once_more(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        taken(store, qid, seconds=MOMENT)
        later(LAPSE)
        again = one_due(store, qid)
        store.claims.bury(again, burial_of(store, again, "lost")._replace(uncounted=1))
        (letter,) = store.dead_letters.list(None, 10)
        assert (again.attempts, letter.attempts, [entry["attempts"] for entry in letter.history]) == (2, 1, [1])

    def test_a_history_keeps_the_first_cause_and_the_last_ones(self, store: Store) -> None:
        qid = filled(store, "a")
        claim = taken(store, qid)
        for n in range(40):
            store.claims.put_back(claim, timedelta(0), f"cause {n}")
            claim = one_due(store, qid)
        causes = [entry["cause"] for entry in laid_down(store, claim, "the end").history]
        assert (len(causes), causes[0], causes[1], causes[-1]) == (20, "cause 0", "cause 22", "the end")

    def test_a_letter_tells_of_every_failure(self, store: Store) -> None:
        qid = filled(store, "a")
        store.claims.put_back(taken(store, qid, member="anna"), timedelta(0), "first")
        store.claims.put_back(one_due(store, qid, member="berta"), timedelta(0), "second")
        letter = laid_down(store, one_due(store, qid, member="carl"), "third")
        assert letter.attempts == 3
        told = [("anna", 1, "first"), ("berta", 2, "second"), ("carl", 3, "third")]
        assert [(entry["member"], entry["attempts"], entry["cause"]) for entry in letter.history] == told
        moments = [str(entry["at"]) for entry in letter.history]
        assert moments == sorted(moments)

    @pytest.mark.req("IBM-62")
    def test_a_message_is_moved_to_a_backout_queue(self, store: Store) -> None:
        qid, (to,) = filled(store, *"ab"), new_queues(store, "failed")
        claim = taken(store, qid)
        buried(store, claim.only(1), backout=to)
        assert read(store, to) == ["b"]
        assert store.dead_letters.list(None, 10) == []
        assert acked(store, claim.only(1), claim.only(0)) == [False, True]
        assert (due(store, qid), take(store, qid)) == ([], None)

    def test_what_the_store_moved_can_be_looked_at(self, store: Store) -> None:
        qid, (to,) = filled(store, "a"), new_queues(store, "failed")
        buried(store, taken(store, qid), backout=to)
        (entry,) = entries(store, to)
        listed = store.overview.transaction(entry.txid)
        assert listed is not None
        assert (listed.group, listed.state) == ("", "committed")
        assert entry.txid in {view.txid for view in store.overview.transactions(undecided=False, limit=10)}
        assert [(view.group, view.topic, view.count) for view in store.halves.views(entry.txid)] == [("", "failed", 1)]

    @pytest.mark.parametrize("place", ["dead letters", "backout"])
    def test_what_is_lost_is_buried_nowhere(self, store: Store, later: Later, place: str) -> None:
        qid, (to,) = filled(store, "a"), new_queues(store, "failed")
        claim = taken(store, qid, seconds=MOMENT)
        later(LAPSE)
        with pytest.raises(ClaimLost):
            buried(store, claim, backout=to if place == "backout" else None)
        assert (read(store, to), store.dead_letters.list(None, 10)) == ([], [])
        assert acked(store, one_due(store, qid)) == [True]

    def test_of_a_crowd_one_buries(self, store: Store) -> None:
        qid, (to,) = filled(store, *"ab"), new_queues(store, "failed")
        claim = taken(store, qid)
        burial = burial_of(store, claim.only(0), backout=to)

        def bury() -> bool:
            try:
                store.claims.bury(claim.only(0), burial)
            except ClaimLost:
                return False
            return True

        assert sorted(crowded(*[bury] * CROWD)) == [False] * (CROWD - 1) + [True]
        assert read(store, to) == ["a"]

    def test_letters_are_listed_newest_first_and_by_group(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        for offset in (1, 0, 2):
            buried(store, claim.only(offset))
        assert [letter.offset for letter in store.dead_letters.list(None, 10)] == [2, 0, 1]
        assert [letter.offset for letter in store.dead_letters.list(GROUP, 2)] == [2, 0]
        assert store.dead_letters.list("mail", 10) == []
        assert store.dead_letters.get(-1) is None

    def test_the_numbers_of_a_groups_letters_come_page_by_page(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        ids = [laid_down(store, claim.only(offset), "broken").id for offset in claim.offsets()]
        assert list(store.dead_letters.ids(GROUP, 0, 2)) == ids[:2]
        assert list(store.dead_letters.ids(GROUP, ids[1], 2)) == ids[2:]
        assert list(store.dead_letters.ids(GROUP, ids[2], 2)) == []
        assert list(store.dead_letters.ids("mail", 0, 2)) == []

    def test_a_letter_is_replayed_as_its_message_and_counts_anew(self, store: Store) -> None:
        qid = filled(store, *"ab")
        message = read_one(store, qid, 0)
        store.claims.put_back(taken(store, qid).only(0), timedelta(0), "first")
        letter = laid_down(store, one_due(store, qid), "second")
        assert store.dead_letters.replay([letter.id]) == 1
        assert store.dead_letters.list(None, 10) == []
        again = one_due(store, qid)
        assert (again.base, again.attempts) == (0, 1)
        assert again.copy is not None
        assert again.copy.delivered("orders", 0, again.base) == message
        again_dead = laid_down(store, again, "third", burial=letter)
        assert causes(again_dead.history) == ["first", "second", "third"]
        assert (again_dead.attempts, again_dead.message.id) == (1, message.id)

    def test_a_replayed_message_keeps_its_content_when_it_is_put_back(self, store: Store) -> None:
        qid = filled(store, "a")
        letter = laid_down(store, taken(store, qid), "broken")
        store.dead_letters.replay([letter.id])
        first = one_due(store, qid)
        store.claims.put_back(first, timedelta(0), "again")
        second = one_due(store, qid)
        assert second.copy == first.copy == letter.copy
        assert acked(store, second) == [True]

    def test_only_letters_that_are_there_are_replayed(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid)
        ids = [laid_down(store, claim.only(offset), "broken").id for offset in claim.offsets()]
        assert store.dead_letters.replay([]) == 0
        assert store.dead_letters.replay([ids[0], ids[1], ids[1], -1]) == 2
        assert store.dead_letters.replay(ids[:2]) == 0
        assert [letter.id for letter in store.dead_letters.list(None, 10)] == ids[2:]

    def test_of_a_crowd_one_replays(self, store: Store) -> None:
        qid = filled(store, "a")
        letter = laid_down(store, taken(store, qid), "broken")
        assert sorted(crowded(*[partial(store.dead_letters.replay, [letter.id])] * CROWD)) == [0] * (CROWD - 1) + [1]
        assert len(due(store, qid)) == 1

    def test_purged_letters_are_gone_for_good(self, store: Store) -> None:
        qid = filled(store, *"ab")
        claim = taken(store, qid)
        ids = [laid_down(store, claim.only(offset), "broken").id for offset in claim.offsets()]
        assert store.dead_letters.purge([]) == 0
        assert store.dead_letters.purge([ids[0], ids[0], -1]) == 1
        assert store.dead_letters.replay([ids[0]]) == 0
        assert [letter.id for letter in store.dead_letters.list(None, 10)] == [ids[1]]
        assert due(store, qid) == []


def laid_down(store: Store, claim: Claim, cause: str, *, burial: DeadLetter | None = None) -> DeadLetter:
    """Bury the one message of a claim among the dead letters, and return the letter."""
    store.groups.open(GROUP, Style.WORK, Policy())  # a letter comes to a group that there is
    made = burial_of(store, claim, cause)
    store.claims.bury(claim, made if burial is None else made._replace(copy=burial.copy))
    return store.dead_letters.list(None, 1)[0]


def causes(history: object) -> list[object]:
    """Return the causes of a history."""
    assert isinstance(history, list)
    return [entry["cause"] for entry in history if isinstance(entry, Mapping)]
