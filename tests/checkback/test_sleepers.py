"""A leader that slept past its lease knows nothing any more, whatever became of what it had read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from tests.checkback.test_rivals import Meanwhile, meanwhile
from tests.scene.members import QUICK, Member, age, counted
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import UNKNOWN
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.checkers import Question
from txsaga.checkback.heartbeat import Lease
from txsaga.checkback.profile import CheckProfile, Exhausted
from txsaga.checkback.round import CheckBack, Round
from txsaga.core.decision import Decision

__all__ = ["meanwhile"]
AGAIN = timedelta(0)
PARKS = CheckProfile(interval=AGAIN, max_checks=1)
ROLLS_BACK = CheckProfile(interval=AGAIN, max_checks=1, on_exhausted=Exhausted.ROLL_BACK)
SLEEP = Lease.TTL.total_seconds() + 2


class Sleeper:
    """A leader with one transaction that was asked about in vain, beside another engine."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.first, self.second = shop, Member(shop), Member(shop)
        self.txid = self.first.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"a chair").txid
        self.second.producer(checker=says(UNKNOWN))
        age(shop)
        self.beat()

    def beat(self) -> None:
        """Show that both are alive."""
        for member in (self.first, self.second):
            member.beat()

    def answer(self) -> None:
        """Answer what they are asked."""
        for member in (self.first, self.second):
            member.answer()

    def leads(self, profile: CheckProfile, meanwhile: Meanwhile, other: Callable[[], None]) -> None:
        """Lead, and sleep when all is read; the other one leads meanwhile."""
        check_back = CheckBack(self.first.kernel, profile)

        def sleep() -> None:
            self.shop.later(SLEEP)
            self.beat()
            other()
            check_back._lease._until = 0.0

        meanwhile(sleep)
        check_back.run_once()


@pytest.fixture
def sleeper(any_shop: Shop) -> Sleeper:
    """Give that."""
    return Sleeper(any_shop)


@pytest.mark.req("RMQ-79", "RMQ-30")
@pytest.mark.parametrize("profile", [PARKS, ROLLS_BACK], ids=["parks", "rolls back"])
def test_who_slept_gives_nothing_up_that_a_person_resumed_meanwhile(
    any_shop: Shop, sleeper: Sleeper, meanwhile: Meanwhile, profile: CheckProfile
) -> None:
    sleeper.second.lead(QUICK)
    sleeper.answer()

    def park_and_resume() -> None:
        sleeper.second.lead(PARKS)
        assert any_shop.state(sleeper.txid) == "parked"
        ByHand(sleeper.second.kernel).resume(sleeper.txid, who="anna", why="the books are back")

    sleeper.leads(profile, meanwhile, park_and_resume)
    assert (any_shop.state(sleeper.txid), counted(any_shop, sleeper.txid)) == ("prepared", 0)


@pytest.mark.req("RMQ-28", "RMQ-30")
def test_who_slept_asks_nothing_that_the_other_has_just_asked(
    any_shop: Shop, sleeper: Sleeper, meanwhile: Meanwhile
) -> None:
    classic = CheckProfile()

    def ask() -> None:
        sleeper.second.lead(classic)
        sleeper.answer()

    sleeper.leads(classic, meanwhile, ask)
    assert (counted(any_shop, sleeper.txid), any_shop.store.questions.backlog()) == (1, {})


@pytest.mark.req("RMQ-30")
@pytest.mark.parametrize("slept", [None, "noticed", "unnoticed"])
def test_only_a_leader_counts_a_check_that_failed(any_shop: Shop, sleeper: Sleeper, slept: str | None) -> None:
    """The lead may be lost between what was found out and what is written, and only the store knows."""
    lease = Lease(sleeper.first.kernel, "check-back")
    assert lease.take()
    sleeping = Round(sleeper.first.kernel, QUICK, lease, defaultdict(count))
    any_shop.store.doubts.sweep(QUICK.min_age)
    (doubt,) = any_shop.store.doubts.due(1)
    sleeping._put(doubt, "its topic is gone", counted=True)
    if slept:
        any_shop.later(SLEEP)
    if slept == "noticed":
        lease._until = 0.0
    sleeping._write_put_off()
    assert counted(any_shop, sleeper.txid) == (slept is None)


@pytest.mark.req("RMQ-67")
@pytest.mark.rule("R3")
def test_a_plain_half_whose_owner_was_heard_of_in_the_middle_of_a_round_is_not_given_up(
    any_shop: Shop, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.checkback.work_in_progress.TYPICAL", 0.0)
    owner, engine = Member(any_shop), Member(any_shop)
    engine.producer(checker=says(UNKNOWN))
    with owner.producer(checker=says(UNKNOWN)).transaction() as tx:
        tx.send(order())
        tx.prepare()
        age(any_shop)
        engine.beat()
        engine.lead(ROLLS_BACK)
        engine.answer()
        meanwhile(owner.beat)
        engine.lead(ROLLS_BACK)
        assert tx.txid is not None and any_shop.state(tx.txid) == "prepared"
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-67", "RMQ-78")
def test_a_plain_half_that_is_given_up_has_one_audit_row(any_shop: Shop, sleeper: Sleeper) -> None:
    for _ in range(2):
        sleeper.second.lead(ROLLS_BACK)
        sleeper.answer()
    history = any_shop.store.overview.history(sleeper.txid)
    told = [(each.what, each.who) for each in history if not each.what.startswith("CHECK")]
    assert told == [("ROLLBACK", "check-back")]
    assert any_shop.transaction(sleeper.txid).decision is Decision.ROLLBACK
    assert any_shop.store.overview.checks(sleeper.txid) is None


@pytest.mark.req("RMQ-58")
def test_the_members_of_one_group_take_turns_whatever_other_groups_are_asked(any_shop: Shop) -> None:
    heard: Counter[tuple[str, int]] = Counter()
    members = [Member(any_shop), Member(any_shop)]
    for number, member in enumerate(members):

        def checker(question: Question, number: int = number) -> None:
            heard[question.group, number] += 1

        for group in ("chairs", "tables"):
            producer = member.producer(group, checker=checker)
            if number == 0:
                producer.prepare_now(ORDERS, b"")
    age(any_shop)
    leader = CheckBack(members[0].kernel, QUICK)
    for _ in range(4):
        for member in members:
            member.beat()
        leader.run_once()
        for member in members:
            member.answer()
    assert heard == {(group, number): 2 for group in ("chairs", "tables") for number in (0, 1)}
