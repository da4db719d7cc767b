"""What every store promises of doubts: what nobody decided is listed in time, what was decided is not."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import (
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
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import PutOff, VerdictRecord
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import End, Half, Receipt
from txsaga.store.store import Store

BOTH = [COMMIT, ROLLBACK]


class DoubtContract:
    """The list of doubts, as the port `Doubts` promises it."""

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
        (receipt,) = store.halves.write([Half(group, [row(qid, "a")], evidence=resource.id)], ()).receipts
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
            ledger.move(life.txid, TxEvent.SEAL)
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
            ledger.move(life.txid, TxEvent.SEAL)
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
            ledger.move(life.txid, TxEvent.SEAL)
        assert [doubt.txid for doubt in swept(store, group)] == [life.txid]

    @pytest.mark.parametrize("event", [TxEvent.COMMIT, TxEvent.ROLL_BACK, TxEvent.PARK])
    def test_a_keyed_transaction_that_is_out_of_checks_or_decided_is_not_listed(
        self, store: Store, event: TxEvent
    ) -> None:
        group = new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, event)
        assert swept(store, group) == []

    @pytest.mark.req("RMQ-12")
    @pytest.mark.parametrize("decision", BOTH)
    def test_a_doubt_ends_with_its_decision(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt, life = prepared(store, group, row(qid, "a")), opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
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
        store.doubts.put_off([PutOff(receipt.txid, timedelta(seconds=IN_TIME), "why", True)])
        assert [doubt.txid for doubt in store.doubts.due(10)] == [other.txid]
        later(OVER)
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
        (view,) = store.overview.transactions(undecided=True, limit=10)
        assert (view.txid, view.state, view.decision) == (receipt.txid, "parked", None)
        assert read(store, qid) == []
        assert decided(store, end_of(receipt, ROLLBACK, from_check=True)).won
        after = store.overview.transaction(receipt.txid)
        assert after is not None
        assert after.state == "rolled_back"

    def test_doubts_come_oldest_first_and_no_more_than_asked_for(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, str(n))) for n in range(40)]
        assert [doubt.txid for doubt in swept(store, group)] == [receipt.txid for receipt in receipts]
        assert [doubt.txid for doubt in store.doubts.due(3)] == [receipt.txid for receipt in receipts[:3]]

    def test_what_is_worked_on_is_not_due_before_its_lease_is_over(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        prepared(store, group, row(qid, "a"))
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        doubts = swept(store, group)
        assert len(doubts) == 2
        store.doubts.hold(doubts, timedelta(seconds=IN_TIME))
        assert list(store.doubts.due(10)) == []
        later(OVER)
        assert sorted(doubt.txid for doubt in store.doubts.due(10)) == [doubt.txid for doubt in doubts]

    def test_what_is_worked_on_before_any_sweep_is_not_due_either(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        doubt = store.doubts.of(receipt.txid)
        assert doubt is not None
        store.doubts.hold([doubt], LONG)
        assert swept(store, group) == []

    def test_what_is_held_is_told_from_what_is_put_off_and_what_is_due(self, store: Store, later: Later) -> None:
        life = opened(store, new_group(store))
        doubt = store.doubts.of(life.txid)
        assert doubt is not None
        assert not store.doubts.rests(life.txid, timedelta(0))
        store.doubts.hold([doubt], timedelta(seconds=IN_TIME))
        assert store.doubts.rests(life.txid, timedelta(0))
        later(OVER)
        assert not store.doubts.rests(life.txid, timedelta(0))
        store.doubts.put_off([PutOff(life.txid, LONG, "silent", counted=False)])
        assert not store.doubts.rests(life.txid, timedelta(0))

    def test_what_is_young_or_held_is_told_from_what_may_be_asked_about(self, store: Store, later: Later) -> None:
        (qid,), group = new_queues(store), new_group(store)
        half, life = prepared(store, group, row(qid, "a")).txid, opened(store, group).txid
        for txid in (half, life):
            assert store.doubts.rests(txid, LONG)
            assert not store.doubts.rests(txid, timedelta(0))
            doubt = store.doubts.of(txid)
            assert doubt is not None
            store.doubts.hold([doubt], timedelta(seconds=IN_TIME))
            assert store.doubts.rests(txid, timedelta(0))
            later(OVER)
            assert not store.doubts.rests(txid, timedelta(0))

    def test_what_has_a_lease_of_its_own_is_left_alone_for_that_long(self, store: Store) -> None:
        with store.ledgers.open() as ledger:
            life = ledger.create(new_group(store), "transfer-7", 1, lease=LONG)
        assert life is not None
        assert store.doubts.rests(life.txid, timedelta(0))
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        assert not store.doubts.rests(life.txid, timedelta(0))

    @pytest.mark.req("RMQ-29", "RMQ-73")
    def test_what_its_group_or_its_own_immunity_says_counts_for_whoever_asks_by_himself(self, store: Store) -> None:
        (qid,), patient = new_queues(store), new_group(store, "patient")
        store.registry.alter_checks("patient", {"min_age": LONG.total_seconds()})
        assert store.doubts.rests(prepared(store, patient, row(qid, "a")).txid, timedelta(0))
        assert store.doubts.rests(opened(store, patient).txid, timedelta(0))
        immune = prepared(store, new_group(store), row(qid, "a"), immunity=60).txid
        assert store.doubts.rests(immune, timedelta(0))

    @pytest.mark.req("RMQ-29")
    @pytest.mark.parametrize("keyed", [False, True])
    def test_what_was_worked_on_for_long_is_still_not_younger_than_its_group_says(
        self, store: Store, later: Later, keyed: bool
    ) -> None:
        (qid,), group = new_queues(store), new_group(store, "patient")
        store.registry.alter_checks("patient", {"min_age": LONG.total_seconds()})
        txid = opened(store, group).txid if keyed else prepared(store, group, row(qid, "a")).txid
        if keyed:
            with store.ledgers.open() as ledger:
                ledger.move(txid, TxEvent.SEAL)
        doubt = store.doubts.of(txid)
        assert doubt is not None
        store.doubts.hold([doubt], timedelta(seconds=0.1))
        later(0.2)
        assert swept(store, group) == []
        checks = store.overview.checks(txid)
        assert checks is not None and checks.due > doubt.born + LONG / 2  # type: ignore[operator]

    @pytest.mark.req("RMQ-29")
    def test_a_group_may_say_how_long_its_closed_transactions_are_left_alone(self, store: Store) -> None:
        hasty, patient = new_group(store, "hasty"), new_group(store, "patient")
        store.registry.alter_checks("hasty", {"min_age": 0.0})
        store.registry.alter_checks("patient", {"min_age": LONG.total_seconds()})
        first, second = opened(store, hasty), opened(store, patient)
        for life in (first, second):
            with store.ledgers.open() as ledger:
                ledger.move(life.txid, TxEvent.SEAL)
        assert store.doubts.waiting(LONG)
        assert store.doubts.sweep(LONG) == 1
        assert [doubt.txid for doubt in store.doubts.due(10)] == [first.txid]
        assert store.overview.checks(second.txid) is None

    def test_nobody_holds_what_is_decided(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        doubt = store.doubts.of(receipt.txid)
        assert doubt is not None
        decided(store, end_of(receipt, COMMIT))
        store.doubts.hold([doubt], LONG)
        assert store.overview.checks(receipt.txid) is None

    @pytest.mark.req("RMQ-11", "RMQ-92")
    def test_verdicts_decide_plain_halves_and_are_on_record(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        swept(store, group)
        decided(store, end_of(receipts[2], ROLLBACK))
        verdicts = [VerdictRecord(receipt.txid, COMMIT, "the evidence is there") for receipt in receipts]
        standings = store.doubts.settle(verdicts, "check-back")
        assert [(s.decision, s.won) for s in standings] == [(COMMIT, True), (COMMIT, True), (ROLLBACK, False)]
        assert read(store, qid) == ["a", "b"]
        assert list(store.doubts.due(10)) == []
        (told,) = store.overview.history(receipts[0].txid)
        assert (told.what, told.who, told.why) == ("COMMIT", "check-back", "the evidence is there")
        assert list(store.overview.history(receipts[2].txid)) == []
        view = store.overview.transaction(receipts[0].txid)
        assert view is not None and view.from_check

    @pytest.mark.rule("R2")
    def test_verdicts_never_decide_what_has_home_effects(self, store: Store) -> None:
        life = opened(store, new_group(store))
        assert list(store.doubts.settle([VerdictRecord(life.txid, COMMIT, "who knows")], "check-back")) == []
        with store.ledgers.open() as ledger:
            assert ledger.standing(life.txid) is None

    @pytest.mark.req("RMQ-30")
    def test_who_lost_the_lead_puts_nothing_off(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        lead = store.leases.acquire("round", "check-back", "anna", LONG)
        assert lead is not None
        store.leases.release(lead)
        assert not store.doubts.put_off([PutOff(receipt.txid, LONG, "silent", counted=True)], lead)
        assert [doubt.checks for doubt in store.doubts.due(10)] == [0]

    def test_what_came_of_the_last_checks_is_kept(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        for n in range(25):
            store.doubts.put_off([PutOff(receipt.txid, timedelta(0), f"why {n}", counted=n % 2 == 0)])
        remarks = store.overview.remarks(receipt.txid)
        assert [remark.why for remark in remarks] == [f"why {n}" for n in range(5, 25)]
        assert {remark.answer for remark in remarks} == {"UNKNOWN", "NO_ANSWER"}

    def test_what_does_not_count_pushes_out_no_other_remark(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        for why, counted in (("it hangs", True), ("it hangs", True), *[("all are away", False)] * 25):
            store.doubts.put_off([PutOff(receipt.txid, timedelta(0), why, counted=counted)])
        remarks = store.overview.remarks(receipt.txid)
        assert [remark.why for remark in remarks] == ["it hangs", "it hangs", "all are away"]

    @pytest.mark.req("RMQ-79")
    def test_what_is_resumed_is_asked_about_from_the_first_check_on(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "silent", counted=True)])
        with store.ledgers.open() as ledger:
            assert not ledger.resume(receipt.txid)
        park(store, receipt.txid, "out of checks")
        with store.ledgers.open() as ledger:
            assert ledger.resume(receipt.txid)
        assert [(doubt.txid, doubt.checks) for doubt in store.doubts.due(10)] == [(receipt.txid, 0)]

    @pytest.mark.rule("R5")
    def test_the_age_of_what_a_run_owns_counts_from_its_last_step_or_from_when_it_was_known_to_live(
        self, store: Store, later: Later
    ) -> None:
        group = new_group(store)
        with store.ledgers.open() as ledger:
            life = ledger.create(group, "transfer-7", 1, "flow-1")
        assert life is not None
        later(OVER)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        swept(store, group)
        (moved,) = store.doubts.due(10)
        later(OVER)
        store.doubts.put_off([PutOff(life.txid, timedelta(0), "silent", counted=False)])
        (silent,) = store.doubts.due(10)
        store.doubts.put_off([PutOff(life.txid, timedelta(0), "it lives", counted=False, anew=True)])
        (alive,) = store.doubts.due(10)
        assert max(moved.age, alive.age) < timedelta(seconds=OVER) <= silent.age

    @pytest.mark.req("RMQ-29")
    def test_a_group_may_say_how_old_its_halves_must_be(self, store: Store) -> None:
        (qid,), hasty, patient = new_queues(store), new_group(store, "hasty"), new_group(store, "patient")
        store.registry.alter_checks("hasty", {"min_age": 0.0})
        store.registry.alter_checks("patient", {"min_age": LONG.total_seconds()})
        first = prepared(store, hasty, row(qid, "a"))
        prepared(store, patient, row(qid, "b"))
        published(store, hasty, row(qid, "c"))
        read(store, qid)
        store.doubts.sweep(timedelta(0))
        assert [doubt.txid for doubt in store.doubts.due(10)] == [first.txid]

    def test_a_look_tells_whether_there_is_anything_to_do(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        assert not store.doubts.waiting(timedelta(0))
        receipt = prepared(store, group, row(qid, "a"))
        published(store, group, row(qid, "b"))
        read(store, qid)
        assert store.doubts.waiting(timedelta(0))
        store.doubts.sweep(timedelta(0))
        assert store.doubts.waiting(timedelta(0))
        park(store, receipt.txid, "out of checks")
        assert not store.doubts.waiting(timedelta(0))
