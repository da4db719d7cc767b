"""What every store promises of doubts: what nobody decided is listed in time, what was decided is not."""

# The name of a test is a sentence.
# ruff: noqa: D102

from __future__ import annotations

from datetime import timedelta

import pytest

from txsaga.model.asking import PutOff
from txsaga.model.checks import LEASE
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxEvent
from txsaga.model.records import End, Half, Receipt
from txsaga.ports.store import Store
from txsaga.testing.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    park,
    prepared,
    published,
    read,
    row,
    settle,
    swept,
)
from txsaga.testing.timing import Later

BOTH = [COMMIT, ROLLBACK]


class DoubtContract:
    """The list of doubts, as the port `Log` promises it."""

    @pytest.mark.req("RMQ-24", "RMQ-12")
    def test_only_undecided_halves_are_listed(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, str(n))) for n in range(10)]
        for n, receipt in enumerate(receipts[:7]):
            decided(store, end_of(receipt, BOTH[n % 2]))
        assert [doubt.txid for doubt in swept(store, group)] == [r.txid for r in receipts[7:]]

    def test_a_young_half_is_left_alone(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        prepared(store, group, row(qid, "a"))
        published(store, group, row(qid, "b"))
        assert read(store, qid) == ["b"]
        assert store.doubts.sweep(LONG) == 0
        assert list(store.doubts.due(10)) == []

    @pytest.mark.req("RMQ-73", "RMQ-84")
    def test_a_half_is_listed_and_not_due_before_its_own_immunity_is_over(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        immune = prepared(store, group, row(qid, "a"), row(qid, "b", chunk=1), immunity=int(LONG.total_seconds()))
        other = prepared(store, group, row(qid, "c"))
        assert [doubt.txid for doubt in swept(store, group)] == [other.txid]
        assert store.overview.undecided().count == 2
        checks = store.overview.checks(immune.txid)
        assert checks is not None and checks.asked == 0
        born = max(view.born for view in store.halves.views(immune.txid))
        assert abs(checks.due - born - LONG) < timedelta(seconds=1)

    def test_a_doubt_carries_what_its_decision_needs(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        resource = store.registry.resource("billing", store.registry.identity.uuid)
        (receipt,) = store.halves.store([Half(group, [row(qid, "a")], evidence=resource.id)])
        assert isinstance(receipt, Receipt)
        (doubt,) = swept(store, group)
        (view,) = store.halves.views(receipt.txid)
        assert (doubt.txid, doubt.group, doubt.keyed) == (receipt.txid, group, False)
        assert (doubt.evidence, doubt.born) == (resource.id, view.born)
        assert decided(store, End(doubt.txid, doubt.group, doubt.token, COMMIT, from_check=True)).won
        assert "a" in read(store, qid)

    @pytest.mark.rule("R13")
    def test_a_closed_keyed_transaction_is_listed(self, store: Store) -> None:
        group = new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.END)
        (doubt,) = swept(store, group)
        assert (doubt.txid, doubt.group, doubt.token, doubt.keyed) == (life.txid, group, life.token, True)

    @pytest.mark.rule("R13")
    def test_an_open_keyed_transaction_is_its_owners_until_that_is_given_up(self, store: Store) -> None:
        life = opened(store, new_group(store))
        assert swept(store, life.group) == []
        assert store.doubts.sweep(LEASE / 2) == 0

    def test_a_step_of_its_owner_takes_a_keyed_transaction_off_the_list(self, store: Store) -> None:
        group = new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.END)
        assert [doubt.txid for doubt in swept(store, group)] == [life.txid]
        with store.ledgers.open() as ledger:
            ledger.touch(life.txid)
        assert list(store.doubts.due(10)) == []
        assert store.doubts.sweep(LONG) == 0

    @pytest.mark.rule("R13")
    def test_halves_of_a_keyed_transaction_are_no_doubts_of_their_own(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            for part in (1, 2):
                ledger.add(life, part, [row(qid, str(part))])
            ledger.move(life.txid, TxEvent.END)
        assert [doubt.txid for doubt in swept(store, group)] == [life.txid]

    @pytest.mark.parametrize("event", [TxEvent.COMMIT, TxEvent.ROLL_BACK, TxEvent.PARK])
    def test_a_keyed_transaction_that_is_out_of_checks_or_decided_is_not_listed(
        self, store: Store, event: TxEvent
    ) -> None:
        group = new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.END)
            ledger.move(life.txid, event)
        assert swept(store, group) == []

    @pytest.mark.req("RMQ-12")
    @pytest.mark.parametrize("decision", BOTH)
    def test_a_doubt_ends_with_its_decision(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, life = prepared(store, group, row(qid, "a")), opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.END)
        assert {doubt.txid for doubt in swept(store, group)} == {receipt.txid, life.txid}
        decided(store, end_of(receipt, decision))
        assert [doubt.txid for doubt in store.doubts.due(10)] == [life.txid]
        settle(store, life, ROLLBACK)
        assert list(store.doubts.due(10)) == []

    def test_a_half_is_put_on_the_list_once(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        assert [doubt.txid for doubt in swept(store, group)] == [receipt.txid]
        assert store.doubts.sweep(timedelta(0)) == 0

    @pytest.mark.req("RMQ-80")
    def test_a_postponed_doubt_comes_back_with_its_checks(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, other = (prepared(store, group, row(qid, text)) for text in "ab")
        assert [doubt.checks for doubt in swept(store, group)] == [0, 0]
        store.doubts.put_off([PutOff(receipt.txid, timedelta(seconds=0.3), "why", True)])
        assert [doubt.txid for doubt in store.doubts.due(10)] == [other.txid]
        later(0.4)
        checks = {doubt.txid: doubt.checks for doubt in store.doubts.due(10)}
        assert checks == {receipt.txid: 1, other.txid: 0}
        store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "why", False)])
        store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "why", True)])
        assert {doubt.txid: doubt.checks for doubt in store.doubts.due(10)} == checks | {receipt.txid: 2}

    @pytest.mark.req("RMQ-27")
    def test_a_parked_doubt_is_asked_no_more_and_stays_listed(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        (doubt,) = swept(store, group)
        park(store, doubt.txid, "out of checks")
        store.doubts.sweep(timedelta(0))
        assert list(store.doubts.due(10)) == []
        (view,) = store.registry.transactions(undecided=True, limit=10)
        assert (view.txid, view.state, view.decision) == (receipt.txid, "parked", None)
        assert read(store, qid) == []
        assert decided(store, end_of(receipt, ROLLBACK, from_check=True)).won
        after = store.registry.transaction(receipt.txid)
        assert after is not None
        assert after.state == "rolled_back"

    def test_doubts_come_oldest_first_and_no_more_than_asked_for(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, str(n))) for n in range(40)]
        assert [doubt.txid for doubt in swept(store, group)] == [receipt.txid for receipt in receipts]
        assert [doubt.txid for doubt in store.doubts.due(3)] == [receipt.txid for receipt in receipts[:3]]
