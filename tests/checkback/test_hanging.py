"""User code that hangs is waited for once and for a while; what it was asked about waits, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.scene.members import QUICK, Member, age, checks, counted, remarks, until
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.checkback.answering import NOT_SEEN
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.runs import RunState

LAST = CheckProfile(interval=QUICK.interval, max_checks=1)


waited_for: list[threading.Event] = []


def hangs(_: object) -> LocalState:
    """Answer when the test is over."""
    waited_for[-1].wait(30)
    return COMMIT


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Give the event that ends what hangs; nobody waits for long."""
    monkeypatch.setattr("txsaga.core.timeboxed_calls.PATIENCE", 0.2)
    with ExitStack() as leaving:
        event = threading.Event()
        waited_for.append(event)
        leaving.callback(event.set)
        yield event


@pytest.mark.hole("H5")
@pytest.mark.req("RMQ-78")
def test_a_handler_that_hangs_parks_nothing_and_keeps_no_other_group_waiting(
    moody_shop: Shop, over: threading.Event
) -> None:
    called: list[int] = []

    def handler(question: object) -> None:
        called.append(1)
        over.wait(30)

    member = Member(moody_shop)
    first, second = (member.producer("slow", checker=says(UNKNOWN)).prepare_now(ORDERS, b"").txid for _ in range(2))
    other = member.producer("other", checker=says(COMMIT)).prepare_now(ORDERS, b"").txid
    member.broker.when_exhausted("slow", handler)
    age(moody_shop)
    member.beat()
    for _ in range(2):
        member.lead(LAST)
        member.answer()
    assert len(called) == 1  # who hangs is not called again
    assert moody_shop.state(other) == "committed"
    for txid in (first, second):
        assert moody_shop.state(txid) == "prepared"
        assert "the handler of group 'slow' does not answer" in remarks(moody_shop, txid)[-1][1]
    over.set()


@pytest.mark.rule("R5")
def test_a_host_of_flows_that_hangs_has_not_said_that_the_run_is_over(moody_shop: Shop, over: threading.Event) -> None:
    class Host:
        def state(self, run: str) -> RunState:
            over.wait(30)
            return RunState.OVER

    member = Member(moody_shop)
    member.broker.ask_runs(Host())
    tx = member.producer(checker=says(UNKNOWN)).transaction(key="order-42", run="flow-1").__enter__()
    tx.send(order())
    tx.prepare()
    plain = member.producer("other", checker=says(COMMIT)).prepare_now(ORDERS, b"").txid
    age(moody_shop)
    member.beat()
    member.lead()
    member.answer()
    assert tx.txid is not None and checks(moody_shop, tx.txid).asked == 0
    assert moody_shop.state(plain) == "committed"


SLOW = CheckProfile(interval=QUICK.interval, reply_timeout=timedelta(seconds=0.8))
SOON = CheckProfile(interval=QUICK.interval, reply_timeout=timedelta(seconds=0.2))


@pytest.mark.req("RMQ-77", "RMQ-85")
def test_checkers_that_hang_are_left_alone_and_named_and_the_member_answers_for_other_groups(
    any_shop: Shop, over: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(any_shop, threads=2)
    producer = member.producer("slow", checker=hangs)
    hung = [producer.prepare_now(ORDERS, b"").txid for _ in range(3)]
    age(any_shop)
    member.beat()
    member.lead(SOON)
    member.answer()
    counts = sorted(counted(any_shop, txid) for txid in hung)
    assert counts == [0, 1, 1]  # the third one was seen by no checker
    named = "checker tests.checkback.test_hanging.hangs of group 'slow' has not returned for 0 s"
    assert sum(("UNKNOWN", named) in remarks(any_shop, txid) for txid in hung) == 2
    assert sum(named in each.message for each in caplog.records if each.levelname == "WARNING") == 2
    (left,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert "no longer answers checks for group 'slow': 2 of its checkers hang" in left and named[:-5] in left

    other = member.producer("other", checker=says(COMMIT)).prepare_now(ORDERS, b"").txid
    age(any_shop)
    member.beat()
    assert {each.group: each.members for each in any_shop.store.overview.backlogs()} == {"slow": 0, "other": 1}
    member.lead(SOON)
    member.answer()
    assert any_shop.state(other) == "committed"
    over.set()
    until(lambda: member.take_up() == 0 and not any_shop.pending()[1:])
    member.beat()
    member.lead(SOON)
    member.answer()
    assert any_shop.pending() == []
    assert "answers checks for group 'slow' again" in caplog.text


@pytest.mark.req("RMQ-85")
def test_a_member_that_did_not_answer_is_not_asked_again_while_another_one_lives(
    any_shop: Shop, over: threading.Event
) -> None:
    silent, quick = sorted((Member(any_shop), Member(any_shop)), key=lambda member: member.name)
    txids = [silent.producer(checker=hangs).prepare_now(ORDERS, b"").txid for _ in range(3)]
    age(any_shop)
    silent.beat()
    silent.lead(SOON)
    silent.answer()
    quick.producer()
    quick.beat()
    silent.beat()
    quick.lead(SOON)
    quick.answer()
    assert [any_shop.state(txid) for txid in txids] == ["committed"] * 3


@pytest.mark.req("RMQ-79", "RMQ-85")
def test_a_checker_that_still_hangs_is_counted_once_and_stays_named(any_shop: Shop, over: threading.Event) -> None:
    called: list[int] = []

    def checker(question: Question) -> LocalState:
        called.append(question.txid)
        return hangs(question)

    member = Member(any_shop)
    txids = [member.producer("slow", checker=checker).prepare_now(ORDERS, b"").txid for _ in range(3)]
    age(any_shop)
    for _ in range(4):
        member.beat()
        member.lead(replace(SOON, max_checks=2))
        member.answer()
    assert sorted(called) == txids
    for txid in txids:
        assert (any_shop.state(txid), counted(any_shop, txid)) == ("prepared", 1)
        (first, why), again = (each for each in remarks(any_shop, txid) if each[1] != NOT_SEEN)  # on a busy machine
        assert first == "UNKNOWN" and "has not returned for" in why and checker.__qualname__ in why
        assert again == ("NO_ANSWER", f"{why.partition(' has')[0]} still hangs in this member")
    over.set()
    until(lambda: not (member.take_up() or any_shop.pending()))


@pytest.mark.req("RMQ-79", "RMQ-85")
def test_what_a_member_is_asked_for_a_group_that_it_left_does_not_count(any_shop: Shop, over: threading.Event) -> None:
    member = Member(any_shop, threads=2)
    txids = [member.producer("slow", checker=hangs).prepare_now(ORDERS, b"").txid for _ in range(4)]
    age(any_shop)
    member.beat()
    for _ in range(4):  # its lease lasts
        member.lead(SOON)
        member.answer()
    assert sorted(counted(any_shop, txid) for txid in txids) == [0, 0, 1, 1]


@pytest.mark.req("RMQ-77", "RMQ-93")
def test_threads_that_replace_hanging_ones_begin_no_more_checkers_of_a_group_that_is_left(
    any_shop: Shop, over: threading.Event
) -> None:
    calls: list[int] = []
    quick = [True]

    def checker(question: Question) -> LocalState:
        calls.append(question.txid)
        return COMMIT if quick else hangs(question)

    member = Member(any_shop, threads=2)
    producer = member.producer("slow", checker=checker)
    for count in (8, 6):
        txids = [producer.prepare_now(ORDERS, b"").txid for _ in range(count)]
        age(any_shop)
        member.beat()
        member.lead(QUICK if quick else SLOW)
        if quick:
            member.answer()  # quick ones make room, so that more are taken up than there are threads
        quick.clear()
    until(lambda: member.take_up() and _asked(any_shop) == 2)
    member.lead(CheckProfile(interval=QUICK.interval, reply_timeout=timedelta(seconds=5)))
    member.answer()
    assert _asked(any_shop) == 0
    assert len(set(calls) & set(txids)) == 2


def _asked(shop: Shop) -> int:
    return sum(shop.store.questions.backlog().values())
