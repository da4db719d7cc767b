"""What every store promises of questions: counted before they are put, one at a time, nobody's answer is lost."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import (
    LONG,
    ROLLBACK,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    park,
    prepared,
    row,
    swept,
)
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.checkback.questions import Ask, Lead, QuestionAnswer
from txsaga.core.decision import LocalState
from txsaga.core.lifecycle import TxEvent
from txsaga.store.store import Store

SOON, LATE = timedelta(seconds=IN_TIME), OVER


def led(store: Store, holder: str = "engine-1") -> Lead:
    """Take the lead of a round."""
    lead = store.leases.acquire("round", "check-back", holder, LONG)
    assert lead is not None
    return lead


def enlist(store: Store, group: int, *members: str, ttl: timedelta = LONG) -> None:
    """Let members of a group be alive."""
    for member in members:
        store.leases.keep([f"checker:{group}"], member, ttl)


def in_doubt(store: Store, group: int, count: int = 1) -> list[int]:
    """Store halves that are due to be asked about."""
    (qid,) = new_queues(store)
    txids = [prepared(store, group, row(qid, str(n))).txid for n in range(count)]
    assert [doubt.txid for doubt in swept(store, group)] == txids
    return txids


def ask(txid: int, group: int, member: str = "anna", *, patience: timedelta = LONG) -> Ask:
    """Write a question that may come again at once."""
    return Ask(txid, group, member, timedelta(0), patience)


def checks_of(store: Store, txid: int) -> int:
    """Return how often a transaction was asked about."""
    checks = store.overview.checks(txid)
    assert checks is not None
    return checks.asked


class QuestionContract:
    """Questions to the members of a producer group, as the port `Questions` promises them."""

    @pytest.mark.req("RMQ-81", "RMQ-93")
    def test_a_question_is_counted_and_there_is_one_at_a_time(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna", "otto")
        (txid,) = in_doubt(store, group)
        assert store.questions.ask([ask(txid, group)], lead) == [txid]
        assert list(store.doubts.due(10)) == []
        assert store.questions.ask([ask(txid, group, "otto")], lead) == []
        assert (checks_of(store, txid), store.questions.backlog()) == (1, {"anna": 1})

    @pytest.mark.req("RMQ-30")
    def test_who_lost_the_lead_asks_nobody_and_counts_nothing(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.leases.release(lead)
        led(store, "engine-2")
        assert store.questions.ask([ask(txid, group)], lead) == []
        assert (checks_of(store, txid), store.questions.backlog()) == (0, {})

    @pytest.mark.req("RMQ-12", "RMQ-27")
    def test_nobody_is_asked_about_what_is_decided_or_parked(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        (qid,) = new_queues(store)
        settled, parked = (prepared(store, group, row(qid, text)) for text in "ab")
        swept(store, group)
        decided(store, end_of(settled, ROLLBACK))
        park(store, parked.txid, "out of checks")
        assert store.questions.ask([ask(settled.txid, group), ask(parked.txid, group)], lead) == []

    def test_a_member_takes_up_its_own_questions_once(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna", "otto")
        first, second = in_doubt(store, group, 2)
        store.questions.ask([ask(first, group, "anna"), ask(second, group, "otto")], lead)
        (asked,) = store.questions.take("anna", 10)
        assert (asked.doubt.txid, asked.doubt.group, asked.doubt.checks, asked.key) == (first, group, 1, None)
        assert store.questions.take("anna", 10) == []
        assert decided(store, end_of(asked.doubt, ROLLBACK)).won  # type: ignore[arg-type]  # its token is genuine

    @pytest.mark.req("RMQ-86")
    def test_a_question_carries_the_real_topic_and_queue(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        qids = new_queues(store, count=4)
        receipt = prepared(store, group, row(qids[3], "a"))
        swept(store, group)
        store.questions.ask([ask(receipt.txid, group)], lead)
        (asked,) = store.questions.take("anna", 10)
        assert [(half.real_topic, half.real_queue) for half in asked.halves] == [("orders", 3)]

    def test_a_keyed_transaction_is_asked_about_with_its_key(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL)
        swept(store, group)
        store.questions.ask([ask(life.txid, group)], lead)
        (asked,) = store.questions.take("anna", 10)
        assert (asked.key, asked.doubt.keyed, asked.doubt.token) == (life.key, True, life.token)

    @pytest.mark.req("RMQ-61")
    def test_unknown_leaves_a_remark_and_a_decision_leaves_nothing(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        unknown, done = in_doubt(store, group, 2)
        store.questions.ask([ask(unknown, group), ask(done, group)], lead)
        taken = {asked.doubt.txid: asked.doubt for asked in store.questions.take("anna", 10)}
        decided(store, end_of(taken[done], ROLLBACK))  # type: ignore[arg-type]
        answers = [
            QuestionAnswer(unknown, LocalState.UNKNOWN, "who knows"),
            QuestionAnswer(done, LocalState.ROLLBACK, "no"),
        ]
        store.questions.answered("anna", answers)
        (remark,) = store.overview.remarks(unknown)
        assert (remark.who, remark.answer, remark.why) == ("anna", "UNKNOWN", "who knows")
        assert [doubt.txid for doubt in store.doubts.due(10)] == [unknown]
        assert store.overview.checks(done) is None
        (backlog,) = store.overview.backlogs()
        assert (backlog.undecided, backlog.asked, backlog.members) == (1, 0, 1)
        assert backlog.answers == {"ROLLBACK": 1, "UNKNOWN": 1}

    def test_nobody_answers_for_another(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group)], lead)
        store.questions.answered("otto", [QuestionAnswer(txid, LocalState.UNKNOWN, "who knows")])
        assert (store.overview.remarks(txid), store.questions.backlog()) == ((), {"anna": 1})

    @pytest.mark.req("RMQ-61")
    def test_a_question_that_is_not_answered_in_time_counts_as_unknown(self, store: Store, later: Later) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group, patience=timedelta(seconds=3))], lead)
        later(1)
        assert store.questions.collect() == 0
        store.questions.take("anna", 1)  # from now on it has its time to answer
        later(1)
        assert store.questions.collect() == 0
        later(3)
        assert store.questions.collect() == 1
        (remark,) = store.overview.remarks(txid)
        assert (remark.who, remark.answer, checks_of(store, txid)) == ("anna", "UNKNOWN", 1)
        assert [doubt.txid for doubt in store.doubts.due(10)] == [txid]

    @pytest.mark.req("RMQ-85")
    def test_a_question_whose_member_died_first_does_not_count(self, store: Store, later: Later) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna", ttl=SOON)
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group)], lead)
        later(LATE)
        assert store.questions.collect() == 1
        assert checks_of(store, txid) == 0
        assert [doubt.txid for doubt in store.doubts.due(10)] == [txid]

    @pytest.mark.req("RMQ-85")
    def test_a_question_that_a_living_member_does_not_take_up_is_put_to_another(
        self, store: Store, later: Later
    ) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group, patience=SOON / 20)], lead)
        later(LATE)
        assert store.questions.collect() == 1
        (remark,) = store.overview.remarks(txid)
        assert (remark.who, remark.answer, checks_of(store, txid)) == ("anna", "NO_ANSWER", 0)
        assert [doubt.txid for doubt in store.doubts.due(10)] == [txid]
        assert store.questions.take("anna", 10) == []

    @pytest.mark.req("RMQ-85")
    def test_what_no_checker_has_seen_is_given_back_and_does_not_count(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([Ask(txid, group, "anna", LONG, LONG)], lead)
        (asked,) = store.questions.take("anna", 10)
        assert asked.patience == LONG
        store.questions.answered("anna", [QuestionAnswer(txid, None, "no thread was free")])
        (remark,) = store.overview.remarks(txid)
        assert (remark.who, remark.answer, checks_of(store, txid)) == ("anna", "NO_ANSWER", 0)
        assert [doubt.txid for doubt in store.doubts.due(10)] == [txid]
        (backlog,) = store.overview.backlogs()
        assert backlog.answers == {"NO_ANSWER": 1}

    @pytest.mark.req("RMQ-12")
    def test_a_question_about_what_was_decided_meanwhile_is_taken_away(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (qid,) = new_queues(store)
        receipt = prepared(store, group, row(qid, "a"))
        swept(store, group)
        store.questions.ask([ask(receipt.txid, group)], lead)
        decided(store, end_of(receipt, ROLLBACK))
        assert store.questions.take("anna", 10) == []
        assert store.questions.collect() == 1
        assert [backlog.answers for backlog in store.overview.backlogs()] in ([], [{}])  # nobody was silent

    @pytest.mark.req("RMQ-12", "RMQ-85")
    def test_what_its_member_took_up_and_is_decided_is_left_to_it(self, store: Store) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group)], lead)
        (asked,) = store.questions.take("anna", 10)
        decided(store, end_of(asked.doubt, ROLLBACK))  # type: ignore[arg-type]  # its token is genuine
        assert store.questions.collect() == 0
        assert swept(store, group) == []
        assert store.questions.backlog() == {"anna": 1}
        store.questions.answered("anna", [QuestionAnswer(txid, LocalState.ROLLBACK, "no")])
        assert store.questions.backlog() == {}
        assert [backlog.answers for backlog in store.overview.backlogs()] == [{"ROLLBACK": 1}]

    @pytest.mark.req("RMQ-12", "RMQ-85")
    def test_what_is_decided_goes_when_its_member_does_not_take_it_away_in_time(
        self, store: Store, later: Later
    ) -> None:
        group, lead = new_group(store), led(store)
        enlist(store, group, "anna")
        (txid,) = in_doubt(store, group)
        store.questions.ask([ask(txid, group, patience=SOON)], lead)
        (asked,) = store.questions.take("anna", 10)
        decided(store, end_of(asked.doubt, ROLLBACK))  # type: ignore[arg-type]
        later(LATE)
        assert store.questions.collect() == 1
        assert swept(store, group) == []
        assert (store.questions.backlog(), store.overview.checks(txid)) == ({}, None)
        assert [backlog.answers for backlog in store.overview.backlogs()] in ([], [{}])  # nobody was silent
