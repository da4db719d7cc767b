"""What every store promises of its overview: figures that agree with what was done, and who did it."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.binding_contract import bind
from tests.contracts.claiming import GROUP, LAPSE, acked, buried, due, filled, taken
from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    claimed,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    opened,
    park,
    prepared,
    published,
    row,
    settle,
    swept,
)
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.checkback.questions import PutOff
from txsaga.consume.claim import Policy, Style, Unread
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import End, Half, Receipt
from txsaga.flows.ballot import Ballot, CastVote
from txsaga.inspect.overview import Undecided
from txsaga.store.store import Store


def figures(store: Store) -> tuple[int, int, int]:
    """Return how many messages nobody of the one group has had, are in hands, and come again."""
    (reading,) = store.overview.readings()
    return reading.lag, reading.held, reading.retrying


def age(store: Store) -> timedelta:
    """Return the age of the oldest message of the one group."""
    (reading,) = store.overview.readings()
    assert reading.oldest is not None
    return reading.oldest


class OverviewContract:
    """Figures for people, as the port `Overview` promises them."""

    def test_an_empty_store_has_nothing_undecided(self, store: Store) -> None:
        assert store.overview.undecided() == Undecided(count=0, parked=0, oldest=None)
        assert list(store.overview.readings()) == []
        assert store.overview.dispatch().waiting == 0

    def test_what_nobody_decided_is_counted_once_before_and_after_a_sweep(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        life = opened(store, group)
        settle(store, opened(store, group, "another"), ROLLBACK)
        published(store, group, row(qid, "plain"))
        assert store.overview.undecided().count == 4
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        assert len(swept(store, group)) == 4
        assert store.overview.undecided().count == 4
        decided(store, end_of(receipts[0], COMMIT))
        decided(store, end_of(receipts[1], ROLLBACK))
        assert store.overview.undecided().count == 2

    def test_decisions_are_those_that_stand(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        decided(store, end_of(receipts[0], COMMIT))
        decided(store, end_of(receipts[1], ROLLBACK))
        txids = [receipt.txid for receipt in receipts]
        assert store.overview.decisions(txids) == {txids[0]: COMMIT, txids[1]: ROLLBACK}
        assert store.overview.decisions([]) == {}

    def test_the_oldest_one_has_its_age(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        first = prepared(store, group, row(qid, "a"))
        second = prepared(store, group, row(qid, "b"))
        oldest = store.overview.undecided().oldest
        assert oldest is not None
        assert timedelta(0) <= oldest < LONG
        for receipt in (first, second):
            decided(store, end_of(receipt, ROLLBACK))
        assert store.overview.undecided().oldest is None

    @pytest.mark.req("RMQ-27")
    def test_parked_ones_are_counted_and_say_why(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, life = prepared(store, group, row(qid, "a")), opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        assert store.overview.checks(receipt.txid) is None
        swept(store, group)
        assert store.overview.undecided().parked == 0
        store.doubts.put_off([PutOff(receipt.txid, LONG, "why", True)])
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.PARK)
        for txid in (receipt.txid, life.txid):
            park(store, txid, "out of checks")
        assert (store.overview.undecided().count, store.overview.undecided().parked) == (2, 2)
        checks = store.overview.checks(receipt.txid)
        assert checks is not None
        assert (checks.asked, checks.parked) == (1, "out of checks")
        decided(store, end_of(receipt, ROLLBACK, from_check=True))
        assert store.overview.checks(receipt.txid) is None
        assert store.overview.undecided().parked == 1

    def test_groups_lag_behind_by_what_they_have_not_read(self, store: Store) -> None:
        one, two = new_queues(store, count=2)
        (other,) = new_queues(store, "other")
        group = new_group(store)
        published(store, group, row(one, "a", "b"), row(two, "c"))
        published(store, group, row(other, "d"))
        drain(store)
        claim = claimed(store, one)
        store.queues.create_cursors("billing", {two: 0, other: 1})
        store.queues.create_cursors("audit", {other: 0})
        store.queues.advance(claim, "anna", 1)
        found = [(each.group, each.topic, each.lag, each.members) for each in store.overview.readings()]
        assert found == [("audit", "other", 1, 0), ("billing", "orders", 2, 1), ("billing", "other", 0, 0)]

    def test_what_nobody_of_an_ordered_group_has_had_is_its_lag(self, store: Store) -> None:
        qid = filled(store, *"abcd")
        assert store.claims.line_up(GROUP, Unread(qid, 0, 3), [1, 1, 2])
        assert figures(store) == (4, 0, 0)
        first, other = due(store, qid)
        assert figures(store) == (2, 2, 0)
        store.claims.put_back(first, LONG, "broken")
        store.claims.give_back(other)
        assert figures(store) == (3, 0, 1)

    def test_what_comes_again_to_a_group_rests_though_its_member_is_dead(self, store: Store, later: Later) -> None:
        qid = filled(store, *"abcd")
        claim = taken(store, qid, limit=3, seconds=IN_TIME)
        assert figures(store) == (1, 3, 0)
        later(OVER)
        assert figures(store) == (1, 0, 3)
        assert [reading.members for reading in store.overview.readings()] == [0]
        assert acked(store, claim) == [False]

    def test_a_replayed_message_rests_until_it_comes(self, store: Store) -> None:
        qid = filled(store, "a")
        store.groups.open(GROUP, Style.WORK, Policy())
        buried(store, taken(store, qid))
        store.dead_letters.replay([letter.id for letter in store.dead_letters.list(GROUP, 10)])
        assert figures(store) == (0, 0, 1)

    def test_whoever_only_has_what_a_transaction_bound_is_no_living_member(self, store: Store) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        claim = taken(store, qid)
        bind(store, life, claim.only(0))
        assert [reading.members for reading in store.overview.readings()] == [1]
        assert acked(store, claim.only(1)) == [True]
        assert figures(store) == (0, 1, 0)
        assert [reading.members for reading in store.overview.readings()] == [0]

    def test_the_oldest_message_that_is_not_done_has_its_age(self, store: Store, later: Later) -> None:
        qid = filled(store, "a")
        later(LAPSE)
        published(store, new_group(store, "more"), row(qid, "b"))
        drain(store)
        claim = taken(store, qid)
        assert timedelta(seconds=LAPSE) <= age(store) < LONG
        assert acked(store, claim.only(0)) == [True]
        store.claims.put_back(claim.only(1), LONG, "broken")
        later(LAPSE)
        old = age(store)
        later(LAPSE)
        assert age(store) >= old + timedelta(seconds=LAPSE)
        store.queues.reset(GROUP, {qid: 2})
        assert [reading.oldest for reading in store.overview.readings()] == [None]

    def test_committed_transactions_wait_for_a_tick(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        drain(store)
        before = store.overview.dispatch()
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        decided(store, end_of(receipts[0], COMMIT))
        decided(store, end_of(receipts[1], ROLLBACK))
        published(store, group, row(qid, "d"))
        assert store.overview.dispatch().waiting == 2
        drain(store)
        after = store.overview.dispatch()
        assert after.waiting == 0
        assert after.tick > before.tick
        assert timedelta(0) <= after.age < LONG

    @pytest.mark.req("BEYOND-5")
    def test_the_history_of_a_transaction_says_who_and_why(self, store: Store) -> None:
        life, other = (opened(store, new_group(store), key) for key in ("one", "two"))
        with store.ledgers.open() as ledger:
            ledger.record(life.txid, "LOOKED", who="anna", why="it is old")
            ledger.record(other.txid, "LOOKED", who="carl", why="it is there")
        with store.ledgers.open() as ledger:
            ledger.record(life.txid, "ASKED", who="berta", why="it is older")
        found = [(each.what, each.who, each.why) for each in store.overview.history(life.txid)]
        assert found == [("LOOKED", "anna", "it is old"), ("ASKED", "berta", "it is older")]
        assert list(store.overview.history(life.txid + 1000)) == []

    def test_ballots_are_those_of_open_transactions(self, store: Store) -> None:
        lives = [opened(store, new_group(store), key) for key in ("one", "two", "three")]
        for life in lives[:2]:
            with store.ledgers.open() as ledger:
                for name in ("rows", "anna"):
                    ledger.call(life.txid, Ballot(name=name, voters=("a", "b")))
                ledger.cast(life.txid, "rows", CastVote(voter="b", yes=False))
        settle(store, lives[0], ROLLBACK)
        found = store.overview.polls()
        assert [(txid, poll.ballot.name) for txid, poll in found] == [(lives[1].txid, "anna"), (lives[1].txid, "rows")]
        assert [[cast.voter for cast in poll.casts] for _, poll in found] == [[], ["b"]]
        assert len(store.overview.polls(limit=1)) == 1

    def test_every_transaction_can_be_decided_with_what_its_doubt_carries(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        resource = store.registry.resource("billing", store.registry.identity.uuid)
        (receipt,) = store.halves.write(
            [Half(group, [row(qid, "a"), row(qid, "b", chunk=1)], resource.id)], ()
        ).receipts
        assert isinstance(receipt, Receipt)
        doubt = store.doubts.of(receipt.txid)
        assert doubt is not None
        assert (doubt.txid, doubt.group, doubt.keyed, doubt.evidence) == (receipt.txid, group, False, resource.id)
        assert decided(store, End(doubt.txid, doubt.group, doubt.token, COMMIT, from_check=True)).won
        again = store.doubts.of(receipt.txid)
        assert again is not None
        assert again._replace(age=doubt.age) == doubt
        assert store.doubts.of(receipt.txid + 1000) is None

    def test_the_doubt_of_a_keyed_transaction_is_its_life(self, store: Store) -> None:
        (qid,) = new_queues(store)
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            ledger.add(life, 1, [row(qid, "a")])
        doubt = store.doubts.of(life.txid)
        assert doubt is not None
        assert (doubt.txid, doubt.group, doubt.token, doubt.keyed) == (life.txid, life.group, life.token, True)
        assert (doubt.evidence, doubt.checks) == (None, 0)
