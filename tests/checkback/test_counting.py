"""Checks are counted once each, durably, before anybody is asked; out of checks is out of checks."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DBAPIError

from tests.scene.fake_store import FakeQuestions
from tests.scene.members import QUICK, Member, age, checks, counted
from tests.scene.shop import ORDERS, Shop, says
from tests.scene.stored import Stored
from txsaga import UNKNOWN
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.questions import Ask, PutOff
from txsaga.errors import StoreError, TxSagaError
from txsaga.testing.checking import check_once


@pytest.mark.req("RMQ-26", "RMQ-80")
@pytest.mark.conf("BRK-10")
@pytest.mark.parametrize("most", [15, 3])
def test_a_half_is_asked_about_so_often_and_then_parked_once(any_shop: Shop, most: int) -> None:
    seen: list[int] = []

    def checker(question: Question) -> None:
        seen.append(question.checks)

    receipt = any_shop.producer(checker=checker).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    for _ in range(most + 3):
        any_shop.round(most)
    assert seen == list(range(1, most + 1))
    assert any_shop.state(receipt.txid) == "parked"
    assert [each.what for each in any_shop.store.overview.history(receipt.txid)] == ["PARKED"]


@pytest.mark.req("RMQ-80")
@pytest.mark.parametrize(("count", "asked", "state"), [(14, 1, "prepared"), (15, 0, "parked")])
def test_the_last_check_is_the_one_that_reaches_the_maximum(
    shop: Shop, stored: Stored, count: int, asked: int, state: str
) -> None:
    heard: list[object] = []
    receipt = shop.producer(checker=heard.append).prepare_now(ORDERS, b"a chair")
    age(shop)
    shop.store.doubts.sweep(QUICK.min_age)
    stored.rows("UPDATE doubt SET checks = :n", n=count)
    check_once(shop.broker)
    assert (len(heard), counted(shop, receipt.txid), shop.state(receipt.txid)) == (asked, 15, state)


@pytest.mark.req("RMQ-80")
def test_the_count_of_a_half_lies_with_it_and_says_the_first_time_one(any_shop: Shop) -> None:
    receipt = any_shop.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    counts = []
    for _ in range(4):
        any_shop.round()
        counts.append(counted(any_shop, receipt.txid))
    assert counts == [1, 2, 3, 4]


@pytest.mark.req("RMQ-81")
def test_a_check_that_can_not_be_counted_is_not_asked(shop: Shop, stored: Stored) -> None:
    heard: list[object] = []
    receipt = shop.producer(checker=heard.append).prepare_now(ORDERS, b"a chair")
    age(shop)
    stored.rows("ALTER TABLE doubt ADD CONSTRAINT stuck CHECK (checks = 0) NOT VALID")
    check_once(shop.broker, QUICK)
    assert (heard, counted(shop, receipt.txid)) == ([], 0)
    stored.rows("ALTER TABLE doubt DROP CONSTRAINT stuck")
    check_once(shop.broker, QUICK)
    assert (len(heard), counted(shop, receipt.txid)) == (1, 1)


@pytest.mark.req("RMQ-81")
@pytest.mark.hole("H8")
def test_a_question_that_can_not_be_put_is_not_counted(shop: Shop, stored: Stored) -> None:
    heard: list[object] = []
    receipt = shop.producer(checker=heard.append).prepare_now(ORDERS, b"a chair")
    age(shop)
    stored.rows("ALTER TABLE question ADD CONSTRAINT stuck CHECK (false) NOT VALID")
    for _ in range(3):
        check_once(shop.broker, QUICK)
    assert (heard, counted(shop, receipt.txid)) == ([], 0)
    stored.rows("ALTER TABLE question DROP CONSTRAINT stuck")
    check_once(shop.broker, QUICK)
    assert (len(heard), counted(shop, receipt.txid)) == (1, 1)


@pytest.mark.req("RMQ-81")
def test_the_count_is_there_before_the_member_hears_of_it(any_shop: Shop) -> None:
    member = Member(any_shop)
    receipt = member.producer().prepare_now(ORDERS, b"a chair")
    age(any_shop)
    member.beat()
    assert member.lead() == 1
    assert counted(any_shop, receipt.txid) == 1


@pytest.mark.req("RMQ-95")
@pytest.mark.conf("INT-03")
def test_another_leader_goes_on_with_the_count(any_shop: Shop) -> None:
    heard: list[object] = []
    first, second = Member(any_shop), Member(any_shop)
    receipt = first.producer(checker=heard.append).prepare_now(ORDERS, b"a chair")
    second.producer(checker=heard.append)
    age(any_shop)
    for _ in range(7):
        first.beat()
        first.lead()
        first.answer()
    assert counted(any_shop, receipt.txid) == 7
    any_shop.later(60)  # the first is never seen again
    second.beat()
    second.lead()
    second.answer()
    assert (len(heard), counted(any_shop, receipt.txid)) == (8, 8)


@pytest.mark.req("RMQ-95", "RMQ-30")
def test_who_lost_the_lead_counts_and_asks_nothing_any_more(any_shop: Shop) -> None:
    slow = Member(any_shop)
    receipt = slow.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    slow.beat()
    store = any_shop.store
    store.doubts.sweep(QUICK.min_age)
    lead = store.leases.acquire("round", "check-back", slow.name, CheckProfile().reply_timeout)
    assert lead is not None
    any_shop.later(60)
    assert store.leases.acquire("round", "check-back", "another", CheckProfile().interval) is not None
    ask = Ask(receipt.txid, receipt.group, slow.name, QUICK.interval, QUICK.reply_timeout)
    assert list(store.questions.ask([ask], lead)) == []
    assert not store.doubts.put_off([PutOff(receipt.txid, QUICK.interval, "late", True)], lead)
    assert counted(any_shop, receipt.txid) == 0


@pytest.mark.req("RMQ-58", "RMQ-94")
@pytest.mark.conf("BRK-15")
@pytest.mark.hole("H5")
def test_one_question_that_can_not_be_put_stops_no_other(moody_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def checker(question: Question) -> None:
        heard.append(question.txid)

    producer = moody_shop.producer(checker=checker)
    first, sick, third = (producer.prepare_now(ORDERS, b"").txid for _ in range(3))
    questions = moody_shop.store.questions
    assert isinstance(questions, FakeQuestions)
    questions.sick.add(sick)
    moody_shop.check()
    assert heard == [first, third]
    assert counted(moody_shop, sick) == 0
    assert any("the disk is full" in r.message and str(sick) in r.message for r in caplog.records)
    questions.sick.clear()
    moody_shop.check()
    assert sorted(heard) == sorted([first, third] * 2 + [sick])


@pytest.mark.req("RMQ-80")
def test_a_check_of_a_member_that_died_before_it_was_asked_does_not_count(any_shop: Shop) -> None:
    dead, alive = Member(any_shop), Member(any_shop)
    receipt = dead.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    dead.beat()
    dead.lead()
    assert counted(any_shop, receipt.txid) == 1
    any_shop.later(60)
    alive.producer(checker=says(UNKNOWN))
    alive.beat()
    alive.lead()  # takes the question away, and asks anew
    alive.answer()
    assert counted(any_shop, receipt.txid) == 1
    assert checks(any_shop, receipt.txid).parked is None


def test_the_error_of_a_round_is_one_of_ours(shop: Shop, stored: Stored) -> None:
    """Whoever runs rounds by hand is told in our words."""
    shop.producer().prepare_now(ORDERS, b"")
    age(shop)
    stored.rows("ALTER TABLE doubt RENAME TO hidden")
    with pytest.raises(TxSagaError) as told:
        check_once(shop.broker, QUICK)
    assert isinstance(told.value, StoreError) and not isinstance(told.value, DBAPIError)
    stored.rows("ALTER TABLE hidden RENAME TO doubt")
