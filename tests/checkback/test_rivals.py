"""Check-back beside owners who are not dead after all, beside slow databases and beside members with full hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from tests.scene.elsewhere import Elsewhere
from tests.scene.members import Member, age
from tests.scene.shop import ORDERS, Shop, says
from txsaga import COMMIT, UNKNOWN
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.judge import Judge
from txsaga.checkback.profile import CheckProfile, Exhausted
from txsaga.checkback.questions import PutOff, QuestionAnswer
from txsaga.checkback.round import MOST_ASKED, CheckBack
from txsaga.core.decision import Decision
from txsaga.testing.checking import check_once

Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture(params=["shop", "moody_shop"], ids=["home", "memory"])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    """Give a shop on the home database, and one in memory."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Shop)
    return found


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen once, after a round has read what is due."""

    def once(happen: Callable[[], None]) -> None:
        pending, look = [happen], Judge.look

        def late(judge: Judge, cases: Sequence[DoubtContext]) -> None:
            look(judge, cases)
            if pending and cases:
                pending.pop()()

        monkeypatch.setattr(Judge, "look", late)

    return once


@pytest.mark.rule("R3")
@pytest.mark.req("RMQ-69")
def test_an_owner_who_takes_a_key_over_while_a_round_is_under_way_goes_on(any_shop: Shop, meanwhile: Meanwhile) -> None:
    producer = any_shop.producer()
    dead = Elsewhere(producer.transaction(key="order-1")).__enter__()
    any_shop.later(60)
    living = producer.transaction(key="order-1")

    def take_over() -> None:
        living.__enter__()
        living.send(ORDERS, b"a chair")

    meanwhile(take_over)
    check_once(any_shop.broker)
    assert dead.txid is not None and any_shop.state(dead.txid) == "active"
    living.__exit__(None, None, None)
    assert (living.decision, any_shop.bodies()) == (Decision.COMMIT, ["a chair"])


def test_an_owner_who_wakes_up_while_a_round_is_under_way_goes_on(any_shop: Shop, meanwhile: Meanwhile) -> None:
    sleeper = Elsewhere(any_shop.producer().transaction(key="order-1")).__enter__()
    any_shop.later(60)
    meanwhile(lambda: sleeper.prepare())
    check_once(any_shop.broker)
    assert sleeper.txid is not None and any_shop.state(sleeper.txid) != "rolled_back"


@pytest.mark.req("RMQ-67", "RMQ-78")
def test_who_begins_local_work_while_it_is_given_up_is_not_rolled_back(any_shop: Shop, meanwhile: Meanwhile) -> None:
    """The doubt is older than the end that named the resource: nobody may say ROLLBACK behind its back."""
    store = any_shop.store
    resource = store.registry.resource("till", store.registry.identity.uuid).id
    owner = Elsewhere(any_shop.producer().transaction(key="order-1")).__enter__()
    assert owner.txid is not None
    any_shop.later(7200)
    meanwhile(lambda: owner._contribution.close([], resource))
    profile = CheckProfile(total_limit=timedelta(hours=1), on_exhausted=Exhausted.ROLL_BACK)
    check_once(any_shop.broker, profile)
    assert any_shop.state(owner.txid) == "sealed"


def test_a_person_who_resumes_while_it_is_parked_again_is_heard(any_shop: Shop) -> None:
    receipt = any_shop.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    for _ in range(2):
        any_shop.check(1)
    with any_shop.store.ledgers.open() as ledger:
        assert not ledger.due(receipt.txid)
        assert ledger.resume(receipt.txid)
        assert ledger.due(receipt.txid)


@pytest.mark.req("RMQ-79")
def test_what_is_resumed_has_its_total_time_again(any_shop: Shop) -> None:
    profile = CheckProfile(total_limit=timedelta(hours=1), interval=timedelta(0), max_checks=1)
    receipt = any_shop.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    for _ in range(2):
        any_shop.check(1)
    any_shop.later(100 * 3600)
    with any_shop.store.ledgers.open() as ledger:
        assert ledger.resume(receipt.txid)
    any_shop.producer(checker=says(COMMIT))
    check_once(any_shop.broker, profile)
    assert any_shop.state(receipt.txid) == "committed"


@pytest.mark.req("RMQ-58", "RMQ-93")
def test_a_group_whose_members_have_their_hands_full_holds_up_no_other(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.checkback.round.MOST_ASKED", 2)
    monkeypatch.setattr("txsaga.checkback.round.HANDS_FULL", timedelta(hours=1))
    assert MOST_ASKED > 2
    busy, other = any_shop.producer("busy"), any_shop.producer("other")
    for n in range(8):
        busy.prepare_now(ORDERS, str(n).encode())
    receipt = other.prepare_now(ORDERS, b"a chair")
    Heartbeat(any_shop.broker.kernel).enlist()
    any_shop.later(60)
    any_shop.deliver()
    any_shop.later(10)
    Heartbeat(any_shop.broker.kernel).enlist()
    assert receipt.txid not in [doubt.txid for doubt in any_shop.store.doubts.due(4)]
    for _ in range(3):  # a round that found the same ones again would never reach the last
        CheckBack(any_shop.broker.kernel, limit=4).run_once()
    assert list(any_shop.store.doubts.due(10)) == []
    assert sum(any_shop.store.questions.backlog().values()) == 2


@pytest.mark.req("RMQ-93")
def test_a_member_with_full_hands_is_asked_again_when_a_fifth_of_them_is_free(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that finds room for one puts off all the others: each would cost as much as one that finds room."""
    monkeypatch.setattr("txsaga.checkback.round.MOST_ASKED", 10)
    monkeypatch.setattr("txsaga.checkback.round.HANDS_FULL", timedelta(0))
    member, questions = Member(any_shop), any_shop.store.questions
    for _ in range(20):
        member.producer().prepare_now(ORDERS, b"")
    age(any_shop)
    member.beat()
    assert member.lead() == 10
    asked = []
    for _ in range(2):
        (taken,) = questions.take(member.name, 1)
        questions.answered(member.name, [QuestionAnswer(taken.doubt.txid, UNKNOWN, "who knows")])
        asked.append(member.lead())
    assert (asked, questions.backlog()) == ([0, 2], {member.name: 10})


@pytest.mark.req("RMQ-93")
def test_what_waits_for_free_hands_is_due_when_the_leader_looks_next(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hands are free in no time where a checker is quick: whoever looked later would leave them idle."""
    monkeypatch.setattr("txsaga.checkback.round.MOST_ASKED", 1)
    member = Member(any_shop)
    for _ in range(2):
        member.producer().prepare_now(ORDERS, b"")
    age(any_shop)
    member.beat()
    assert member.lead() == 1
    any_shop.later(CheckBack.pace.pause)
    assert len(any_shop.store.doubts.due(10)) == 1


def test_waiting_for_free_hands_leaves_no_remark(any_shop: Shop) -> None:
    receipt = any_shop.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    any_shop.check()
    before = any_shop.store.overview.remarks(receipt.txid)
    any_shop.store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "", False)])
    assert any_shop.store.overview.remarks(receipt.txid) == before


def test_a_text_that_no_store_can_keep_stops_no_round(any_shop: Shop) -> None:
    receipt = any_shop.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    any_shop.check()
    any_shop.store.doubts.put_off([PutOff(receipt.txid, timedelta(0), "a \0 in it", True)])
    with any_shop.store.ledgers.open() as ledger:
        ledger.park(receipt.txid, "another \0")
    assert any_shop.state(receipt.txid) == "parked"


def test_a_profile_takes_a_plain_word_for_what_happens_in_the_end() -> None:
    assert CheckProfile(on_exhausted="rollback").on_exhausted is Exhausted.ROLL_BACK  # type: ignore[arg-type]
