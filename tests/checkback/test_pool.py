"""The threads that checkers run in: as many as the user says, full, slow or hanging."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from tests.scene.members import QUICK, Member, age, checks, counted, remarks, until
from tests.scene.shop import ORDERS, Shop
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.checkback.answering import AnswerRole
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core.facts import Fact, Hearing
from txsaga.core.role_loop import Pace


@pytest.mark.req("RMQ-61")
def test_an_answer_that_does_not_come_in_time_is_unknown_and_still_taken_later(any_shop: Shop) -> None:
    go = threading.Event()

    def slow(_: Question) -> LocalState:
        assert go.wait(30)
        return COMMIT

    member = Member(any_shop)
    receipt = member.producer(checker=slow).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    member.beat()
    member.lead(CheckProfile())
    member.take_up()
    any_shop.later(4)
    member.beat()
    member.lead(CheckProfile())
    assert remarks(any_shop, receipt.txid) == [("UNKNOWN", "no answer in time")]
    assert (counted(any_shop, receipt.txid), any_shop.state(receipt.txid)) == (1, "prepared")
    go.set()
    member.answer()
    assert any_shop.state(receipt.txid) == "committed"
    member.lead()
    assert any_shop.store.overview.checks(receipt.txid) is None


@pytest.mark.req("RMQ-77")
@pytest.mark.conf("BRK-38")
def test_as_many_checkers_run_at_once_as_the_user_says(any_shop: Shop) -> None:
    running, most, go, lock = 0, 0, threading.Event(), threading.Lock()

    def checker(_: Question) -> LocalState:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert go.wait(30)
        with lock:
            running -= 1
        return COMMIT

    member = Member(any_shop, threads=4)
    producer = member.producer(checker=checker)
    for _ in range(10):
        producer.prepare_now(ORDERS, b"")
    age(any_shop)
    member.beat()
    assert member.lead() == 10
    member.take_up()
    until(lambda: running == 4)
    assert not any_shop.read()
    go.set()
    member.answer()
    assert (most, any_shop.pending(), len(any_shop.bodies())) == (4, [], 10)


@pytest.mark.req("RMQ-93", "RMQ-77")
@pytest.mark.hole("H8")
def test_what_waits_for_a_thread_of_its_member_is_neither_late_nor_asked_again(any_shop: Shop) -> None:
    heard: Counter[int] = Counter()
    go = threading.Event()

    def checker(question: Question) -> LocalState:
        heard[question.txid] += 1
        assert go.wait(30)
        return COMMIT

    member = Member(any_shop, threads=4)
    producer = member.producer(checker=checker)
    txids = [producer.prepare_now(ORDERS, b"").txid for _ in range(10)]
    age(any_shop)
    member.beat()
    member.lead(CheckProfile())
    for _ in range(3):
        member.take_up()
        any_shop.later(4)
        member.beat()
        member.lead(CheckProfile())
    assert (sorted(heard), set(heard.values())) == (txids[:4], {1})
    assert [remarks(any_shop, txid) for txid in txids[4:]] == [[]] * 6
    go.set()
    member.answer()
    assert (sorted(heard), set(heard.values()), any_shop.pending()) == (txids, {1}, [])


def test_checkers_that_hang_keep_no_round_and_no_other_group_waiting(any_shop: Shop) -> None:
    go = threading.Event()
    stuck, quick = Member(any_shop, threads=1), Member(any_shop)
    hung = stuck.producer("bank", checker=lambda _: UNKNOWN if go.wait(30) else COMMIT).prepare_now(ORDERS, b"money")
    fast = quick.producer().prepare_now(ORDERS, b"a chair")
    age(any_shop)
    for member in (stuck, quick):
        member.beat()
    quick.lead()
    stuck.take_up()
    quick.answer()
    assert (any_shop.state(fast.txid), any_shop.state(hung.txid)) == ("committed", "prepared")
    go.set()
    stuck.answer()
    assert checks(any_shop, hung.txid).parked is None
    assert QUICK.max_checks == 15


@pytest.mark.req("RMQ-93", "RMQ-85")
@pytest.mark.hole("H8")
def test_what_a_member_whose_threads_all_hang_does_not_take_up_is_put_to_another(any_shop: Shop) -> None:
    """It lives, so its lease says nothing; elsewhere its questions are lost and counted."""
    go = threading.Event()
    stuck, quick = Member(any_shop, threads=1), Member(any_shop)
    producer = stuck.producer(checker=lambda _: UNKNOWN if go.wait(30) else COMMIT)
    txids = [producer.prepare_now(ORDERS, b"").txid for _ in range(6)]
    age(any_shop)
    stuck.beat()
    leader = CheckBack(stuck.kernel, QUICK)
    leader.run_once()
    stuck.take_up()
    quick.producer()
    for _ in range(4):
        any_shop.later(61)
        stuck.beat()
        quick.beat()
        leader.run_once()
        quick.answer()
        stuck.take_up()
    assert [any_shop.state(txid) for txid in txids[1:]] == ["committed"] * 5
    go.set()
    stuck.answer()


@pytest.mark.req("RMQ-77")
def test_a_hanging_checker_makes_its_member_look_no_more_often_than_an_idle_one(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerRole, "pace", Pace(3600, 3600))
    looks, go = list[Fact](), threading.Event()
    member = Member(any_shop, lambda fact: looks.append(fact) if isinstance(fact, Hearing) else None)
    producer = member.producer(checker=lambda _: COMMIT if go.wait(30) else UNKNOWN)
    hung = producer.prepare_now(ORDERS, b"a chair")
    age(any_shop)
    member.beat()
    member.lead()
    for _ in range(5):
        assert member.take_up() > 0
    assert len(looks) == 1
    go.set()
    member.answer()
    assert any_shop.state(hung.txid) == "committed"


@pytest.mark.req("RMQ-77")
def test_what_there_was_no_room_for_is_taken_up_as_soon_as_there_is_while_one_checker_hangs(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerRole, "pace", Pace(3600, 3600))
    go, hung = threading.Event(), list[int]()

    def checker(question: Question) -> LocalState:
        if question.txid in hung:
            assert go.wait(30)
        return COMMIT

    member = Member(any_shop, threads=2)
    producer = member.producer(checker=checker)
    txids = [producer.prepare_now(ORDERS, b"").txid for _ in range(30)]
    hung.append(txids[0])
    age(any_shop)
    member.beat()
    assert member.lead() == 30
    until(lambda: member.take_up() == 1)  # the one that hangs
    assert [any_shop.state(txid) for txid in txids] == ["prepared"] + ["committed"] * 29
    go.set()
    member.answer()
