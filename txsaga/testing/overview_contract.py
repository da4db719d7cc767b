"""What every store promises of its overview: figures that agree with what was done, and who did it."""

# The name of a test is a sentence.
# ruff: noqa: D102

from __future__ import annotations

from datetime import timedelta

import pytest

from txsaga.model.asking import PutOff
from txsaga.model.lifecycle import TxEvent
from txsaga.model.overview import Undecided
from txsaga.model.records import End, Half, Receipt
from txsaga.ports.store import Store
from txsaga.testing.samples import (
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
            ledger.move(life.txid, TxEvent.END)
        assert len(swept(store, group)) == 4
        assert store.overview.undecided().count == 4
        decided(store, end_of(receipts[0], COMMIT))
        decided(store, end_of(receipts[1], ROLLBACK))
        assert store.overview.undecided().count == 2

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
            ledger.move(life.txid, TxEvent.END)
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

    def test_every_transaction_can_be_decided_with_what_its_doubt_carries(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        resource = store.registry.resource("billing", store.registry.identity.uuid)
        (receipt,) = store.halves.store([Half(group, [row(qid, "a"), row(qid, "b", chunk=1)], resource.id)])
        assert isinstance(receipt, Receipt)
        doubt = store.doubts.of(receipt.txid)
        assert doubt is not None
        assert (doubt.txid, doubt.group, doubt.keyed, doubt.evidence) == (receipt.txid, group, False, resource.id)
        assert decided(store, End(doubt.txid, doubt.group, doubt.token, COMMIT, from_check=True)).won
        assert store.doubts.of(receipt.txid) == doubt
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
