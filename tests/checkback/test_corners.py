"""What a round does in its corners: its lease, its counts, what is given up, and what its end hooks hear."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import pytest

from tests.scene.members import QUICK, Member, age, counted, remarks
from tests.scene.shop import Shop, order, says
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.checkback import questions as asking
from txsaga.checkback.answering import NOT_SEEN, AnswerRole, PendingQuestion
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.checkers import Question
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.heartbeat import Lease
from txsaga.checkback.profile import LEASE, CheckProfile, Exhausted
from txsaga.checkback.round import Exhaustion, Round
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import Doubt
from txsaga.errors import InDoubt, StoreBusy

pytestmark = pytest.mark.core


def left(shop: Shop, member: Member, number: int = 1, key: str | None = None) -> list[int]:
    """Leave closed transactions that nobody can answer for, old enough."""
    producer = member.producer(checker=says(UNKNOWN))
    txids = []
    for _ in range(number):
        tx = producer.transaction(key=key).__enter__()
        tx.send(order())
        tx.prepare()
        assert tx.txid is not None
        txids.append(tx.txid)
    age(shop)
    return txids


def round_of(member: Member, profile: CheckProfile = QUICK) -> Round:
    """Begin a round."""
    lease = Lease(member.kernel, "check-back")
    assert lease.take()
    return Round(member.kernel, profile, lease, defaultdict(count))


def test_a_lead_is_renewed_when_half_of_its_time_is_over(moody_shop: Shop) -> None:
    lease, leases = Lease(Member(moody_shop).kernel, "check-back"), moody_shop.store.leases
    assert lease.take()
    lead = lease.lead
    assert lead is not None
    moody_shop.later(Lease.TTL.total_seconds() * 0.6)
    lease._until = 0.0
    assert lease.take() and lease.lead == lead
    moody_shop.later(Lease.TTL.total_seconds() * 0.6)
    assert leases.acquire("round", "check-back", "another", Lease.TTL) is None


def test_a_round_renews_its_lead_at_each_transaction(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(moody_shop)
    left(moody_shop, member, 3)
    working = round_of(member)
    leads = iter([True])
    monkeypatch.setattr(working, "_leads", lambda: next(leads, False))
    dealt: list[DoubtContext] = []
    monkeypatch.setattr(working, "_deal_with", lambda case, _: dealt.append(case))
    working.run(10)
    assert len(dealt) == 1


@pytest.mark.req("RMQ-67")
def test_a_group_that_has_no_members_any_more_keeps_nothing_past_its_limit(moody_shop: Shop) -> None:
    owner, engine = Member(moody_shop), Member(moody_shop)
    (txid,) = left(moody_shop, owner)
    case = DoubtContext(moody_shop.store, _due(moody_shop)[0])
    limited = CheckProfile(total_limit=timedelta(seconds=1))
    round_of(engine, limited)._leave_alone("shop", [case])
    assert moody_shop.state(txid) == "parked"


def test_a_store_that_is_busy_counts_for_nobody(moody_shop: Shop) -> None:
    member = Member(moody_shop)
    (txid,) = left(moody_shop, member)
    working = round_of(member)
    case = DoubtContext(moody_shop.store, _due(moody_shop)[0])
    working._not_settled(
        (case, asking.VerdictRecord(txid, Decision.COMMIT, "it is there")), StoreBusy("too many writers")
    )
    working._write_put_off()
    assert counted(moody_shop, txid) == 0


def test_a_group_whose_settings_can_not_be_read_is_asked_as_the_engine_says(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(moody_shop)
    (txid,) = left(moody_shop, member)
    registry = moody_shop.store.registry
    group = registry.group_by_id(_due(moody_shop)[0].group)
    broken = type(group)(id=group.id, name=group.name, transactional=True, checks={"interval": "soon"})
    monkeypatch.setattr(registry, "group_by_id", lambda _: broken)
    member.beat()
    member.lead()
    assert counted(moody_shop, txid) == 1
    assert "the check settings of producer group 1 can't be read" in caplog.text


@pytest.mark.rule("R2")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_what_was_decided_meanwhile_is_not_parked(moody_shop: Shop, key: str | None) -> None:
    member = Member(moody_shop)
    (txid,) = left(moody_shop, member, key=key)
    (doubt,) = _due(moody_shop)
    ByHand(member.kernel).decide(txid, Decision.COMMIT, who="anna", why="asked")
    assert (
        Exhaustion(member.kernel)(DoubtContext(moody_shop.store, doubt), "out of checks", Exhausted.PARK) == "settled"
    )
    assert moody_shop.state(txid) == "committed"


def test_a_reason_that_no_store_can_keep_is_kept_as_far_as_it_can_be(shop: Shop) -> None:
    member = Member(shop)
    (txid,) = left(shop, member)
    (doubt,) = _due(shop)
    Exhaustion(member.kernel)(DoubtContext(shop.store, doubt), "a \0 in it", Exhausted.PARK)
    assert (shop.state(txid), shop.store.overview.history(txid)[-1].what) == ("parked", "PARKED")


@pytest.mark.rule("R3")
def test_a_keyed_one_whose_owner_was_heard_of_is_not_rolled_back_when_it_is_given_up(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.checkback.work_in_progress.TYPICAL", 0.0)
    member = Member(moody_shop)
    (txid,) = left(moody_shop, member, key="order-42")
    (doubt,) = _due(moody_shop)
    moody_shop.store.doubts.hold([doubt], LEASE)
    with pytest.raises(InDoubt):
        Exhaustion(member.kernel)(DoubtContext(moody_shop.store, doubt), "out of checks", Exhausted.ROLL_BACK)
    assert moody_shop.state(txid) == "sealed"


@pytest.mark.req("RMQ-60")
def test_an_answer_that_comes_when_a_keyed_one_is_parked_ends_it_all_the_same(any_shop: Shop) -> None:
    def checker(question: Question) -> LocalState:
        with any_shop.store.ledgers.open() as ledger:
            ledger.lock(question.txid)
            ledger.move(question.txid, TxEvent.PARK)
            ledger.park(question.txid, "out of checks")
        return COMMIT

    member = Member(any_shop)
    (txid,) = left(any_shop, member, key="order-42")
    member.producer(checker=checker)
    member.beat()
    member.lead()
    member.answer()
    assert any_shop.state(txid) == "committed"


@pytest.mark.req("RMQ-93")
def test_what_waited_too_long_for_a_thread_is_given_back_and_not_counted(any_shop: Shop) -> None:
    member = Member(any_shop)
    (txid,) = left(any_shop, member)
    member.beat()
    member.lead()
    (asked,) = any_shop.store.questions.take(member.name, 1)
    answering = AnswerRole(member.kernel)
    answering._mine[txid] = PendingQuestion(asked, time.monotonic() - asked.patience.total_seconds())
    answering._take_away()
    assert (counted(any_shop, txid), any_shop.store.questions.backlog()) == (0, {})
    assert remarks(any_shop, txid) == [("NO_ANSWER", NOT_SEEN)]


def _due(shop: Shop) -> Sequence[Doubt]:
    shop.store.doubts.sweep(timedelta(0))
    return shop.store.doubts.due(10)
