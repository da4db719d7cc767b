"""A round: one leader at a time, everybody by itself, nothing twice, nothing written where there is nothing to do."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.scene.fake_store import FakeHalves
from tests.scene.members import QUICK, Member, age, checks, counted, until
from tests.scene.shop import ORDERS, Shop, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.checkback.checkers import Question
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.judge import Verdict
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.facts import Fact
from txsaga.core.records import End
from txsaga.core.role_loop import Loop
from txsaga.errors import StoreError, StoreUnavailable


@pytest.mark.req("RMQ-30")
@pytest.mark.conf("BRK-14")
def test_each_round_says_when_it_begins_and_ends_and_what_it_did(
    any_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    any_shop.producer().prepare_now(ORDERS, b"")
    age(any_shop)
    with caplog.at_level(logging.INFO, "txsaga"):
        any_shop.round()
    begun, ended = [r.message for r in caplog.records if r.message.startswith("check-back round")]
    assert begun == "check-back round started"
    assert ended.startswith("check-back round took 0.") and ended.endswith(" s: 1 asked")


@pytest.mark.req("RMQ-30")
def test_while_one_leads_the_others_stand_by_and_follow_when_it_is_gone(any_shop: Shop) -> None:
    first, second = Member(any_shop), Member(any_shop)
    first.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"")
    second.producer(checker=says(UNKNOWN))
    age(any_shop)
    first.beat()
    second.beat()
    lead = any_shop.store.leases.acquire("round", "check-back", first.name, CheckProfile().min_age)
    assert lead is not None
    assert second.lead() == 0
    any_shop.store.leases.release(lead)
    assert second.lead() == 1
    assert any_shop.store.leases.acquire("round", "check-back", first.name, CheckProfile().min_age) is not None


@pytest.mark.req("RMQ-30")
def test_a_leader_that_is_told_to_stop_ends_its_round_and_gives_the_lead_back(any_shop: Shop) -> None:
    member = Member(any_shop)
    receipt = member.producer().prepare_now(ORDERS, b"")
    age(any_shop)
    member.beat()
    loop = Loop([CheckBack(member.kernel, QUICK)])
    loop.start()
    until(lambda: any_shop.store.questions.backlog())
    loop.stop()
    assert counted(any_shop, receipt.txid) == 1
    assert any_shop.store.leases.acquire("round", "check-back", "another", QUICK.min_age) is not None


@pytest.mark.req("RMQ-24", "RMQ-12")
@pytest.mark.conf("BRK-16", "BRK-18", "BRK-24")
def test_a_round_goes_by_its_checkpoint_and_carries_what_is_undecided(shop: Shop, stored: Stored) -> None:
    producer = shop.producer(checker=says(UNKNOWN))
    receipts = [producer.prepare_now(ORDERS, b"") for _ in range(10)]
    for receipt in receipts[:7]:
        producer.commit(receipt)
    age(shop)
    shop.round()
    assert stored.rows("SELECT txid FROM doubt ORDER BY txid") == [(r.txid,) for r in receipts[7:]]
    assert stored.value("SELECT txid FROM checkpoint WHERE name = 'sweep'") >= receipts[-1].txid


@pytest.mark.conf("BRK-17")
@pytest.mark.req("RMQ-24")
def test_where_nothing_is_due_nothing_is_written(shop: Shop, stored: Stored) -> None:
    shop.producer().prepare_now(ORDERS, b"")
    shop.check()
    age(shop)
    shop.round()
    shop.round()
    before = _written(stored)
    for _ in range(5):
        assert CheckBack(shop.broker.kernel).run_once() == 0
    assert _written(stored) == before


def _written(stored: Stored) -> list[tuple[object, ...]]:
    """Read where rows of check-back lie on disk and who wrote them."""
    tables = ("doubt", "question", "lease", "checkpoint", "tally")
    return [row for name in tables for row in stored.rows(f"SELECT '{name}', ctid::text, xmin::text FROM {name}")]


@pytest.mark.req("RMQ-93", "RMQ-12")
@pytest.mark.hole("H1")
def test_what_is_settled_while_the_pool_is_full_is_not_asked_about(any_shop: Shop) -> None:
    heard: Counter[int] = Counter()
    go = threading.Event()

    def checker(question: Question) -> LocalState:
        heard[question.txid] += 1
        assert go.wait(30)
        return COMMIT

    member = Member(any_shop, threads=1)
    producer = member.producer(checker=checker)
    first, second, third = (producer.prepare_now(ORDERS, b"") for _ in range(3))
    age(any_shop)
    member.beat()
    member.lead(QUICK)
    member.take_up()
    until(lambda: heard)
    producer.commit(second)
    for _ in range(3):
        member.lead(QUICK)
        assert any_shop.store.questions.backlog()[member.name] == 2
    go.set()
    member.answer()
    assert heard == {first.txid: 1, third.txid: 1}
    assert len(any_shop.read()) == 3


@pytest.mark.req("RMQ-93")
def test_at_most_one_question_about_a_half_is_under_way_whoever_leads(any_shop: Shop) -> None:
    leaders = [Member(any_shop) for _ in range(3)]
    receipt = leaders[0].producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"")
    for member in leaders[1:]:
        member.producer(checker=says(UNKNOWN))
    age(any_shop)
    for _ in range(3):
        for member in leaders:
            member.beat()
            member.lead(QUICK)
    assert sum(any_shop.store.questions.backlog().values()) == 1
    assert counted(any_shop, receipt.txid) == 1


@pytest.mark.req("RMQ-93")
@pytest.mark.hole("H12")
@pytest.mark.timeout(60)
def test_many_leaders_at_once_ask_once(shop: Shop) -> None:
    """Threads race for one round on the home database, again and again."""
    heard: Counter[int] = Counter()

    def checker(question: Question) -> LocalState:
        heard[question.txid] += 1
        return UNKNOWN

    members = [Member(shop) for _ in range(4)]
    receipts = [member.producer(checker=checker).prepare_now(ORDERS, b"") for member in members for _ in range(5)]
    age(shop)
    for member in members:
        member.beat()
    for turn in range(3):
        threads = [threading.Thread(target=_rounds, args=(member,)) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for member in members:
            member.answer()
        assert {counted(shop, receipt.txid) for receipt in receipts} == {turn + 1}
        assert set(heard.values()) == {turn + 1}
        shop.later(61)


def _rounds(member: Member) -> None:
    for _ in range(3):
        member.lead(CheckProfile())


@pytest.mark.req("RMQ-94", "RMQ-24")
@pytest.mark.conf("BRK-15")
@pytest.mark.hole("H5")
def test_a_record_that_can_not_even_be_looked_at_is_parked_and_the_others_go_on(
    any_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    till = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    with till.begin() as connection:
        connection.execute(text("CREATE TABLE sale (id int)"))
    member = Member(any_shop, till=till)
    left = []
    for n in range(3):
        tx = member.producer().transaction().__enter__()
        tx.send(order(str(n)))
        with tx.local("till") as connection:
            connection.execute(text("INSERT INTO sale VALUES (:n)"), {"n": n})
        assert tx.txid is not None and tx.id is not None
        left.append((tx.txid, tx.id))
    _, evidence = member.kernel.resource("till")
    poison, real, real_many = left[1][1], member.kernel.settler.judge.know, evidence.read_many

    def know(case: DoubtContext, **options: bool) -> Verdict:
        if case.id == poison:
            raise ZeroDivisionError("poison")
        return real(case, **options)

    def read_many(ids: list[str]) -> object:
        if poison in ids:
            raise StoreError("one of these can't be read")
        return real_many(ids)

    monkeypatch.setattr(member.kernel.settler.judge, "know", know)
    monkeypatch.setattr(evidence, "read_many", read_many)
    age(any_shop)
    for _ in range(2):
        member.lead()
    assert [any_shop.state(txid) for txid, _ in left] == ["committed", "parked", "committed"]
    assert checks(any_shop, left[1][0]).parked == "ZeroDivisionError: poison"
    assert sorted(any_shop.bodies()) == ["0", "2"]
    new = member.producer().prepare_now(ORDERS, b"later")
    age(any_shop)
    member.beat()
    assert member.lead() == 1
    member.answer()
    assert any_shop.state(new.txid) == "committed"


@pytest.mark.req("RMQ-58")
@pytest.mark.conf("BRK-56", "BRK-57")
def test_a_checker_that_raises_stops_no_other(any_shop: Shop) -> None:
    heard: list[int] = []

    def checker(question: Question) -> LocalState:
        heard.append(question.txid)
        if len(heard) == 2:
            raise OSError("the books are closed")
        return COMMIT

    producer = any_shop.producer(checker=checker)
    for n in range(3):
        producer.prepare_now(ORDERS, b"%d" % n)
    age(any_shop)
    assert (any_shop.round(), len(heard), len(any_shop.pending())) == (2, 3, 1)


@pytest.mark.req("RMQ-62")
def test_an_answer_that_can_not_be_written_is_logged_and_the_half_stays(moody_shop: Shop, halves: FakeHalves) -> None:
    producer = moody_shop.producer(checker=says(COMMIT))
    receipt = producer.prepare_now(ORDERS, b"a chair")
    halves.broken.append(StoreError("the disk is full"))
    assert moody_shop.check() == 0
    assert moody_shop.state(receipt.txid) == "prepared"
    (remark,) = moody_shop.store.overview.remarks(receipt.txid)
    assert remark.why == "the checker said COMMIT, but it could not be decided: the disk is full"
    assert moody_shop.check() == 1
    assert moody_shop.bodies() == ["a chair"]


@pytest.mark.rule("R2", "R14")
@pytest.mark.hole("H1")
@pytest.mark.req("RMQ-92")
def test_the_owner_may_be_first_while_its_question_is_answered(any_shop: Shop) -> None:
    """Whoever decides first is right; the answer that comes second takes only the question away."""
    member = Member(any_shop)
    producer = member.producer(checker=lambda _: LocalState.ROLLBACK)
    receipt = producer.prepare_now(ORDERS, b"a chair")
    age(any_shop)
    member.beat()
    member.lead()
    assert producer.commit(receipt).won
    member.answer()
    member.lead()
    assert (any_shop.state(receipt.txid), any_shop.bodies()) == ("committed", ["a chair"])
    assert any_shop.store.overview.checks(receipt.txid) is None
    assert not any_shop.store.questions.backlog()


@pytest.mark.hole("H1")
@pytest.mark.req("RMQ-92")
def test_a_late_end_is_refused_and_told_what_the_check_decided(any_shop: Shop) -> None:
    producer = any_shop.producer(checker=lambda _: LocalState.ROLLBACK)
    receipt = producer.prepare_now(ORDERS, b"a chair")
    assert any_shop.check() == 1
    standings = [any_shop.store.halves.write((), [End(*receipt[:3], decision)]).standings[0] for decision in Decision]
    assert [(s.decision.name, s.won) for s in standings] == [("ROLLBACK", False)] * 2  # type: ignore[union-attr]
    assert any_shop.bodies() == []


def test_a_round_that_dies_half_way_leaves_the_rest_due(any_shop: Shop) -> None:
    class Died(BaseException):
        pass

    def dies(fact: Fact) -> None:
        if isinstance(fact, facts.Asking):
            raise Died

    sick, well = Member(any_shop, dies), Member(any_shop)
    receipt = well.producer().prepare_now(ORDERS, b"")
    age(any_shop)
    well.beat()
    with pytest.raises(Died):
        sick.lead()
    assert counted(any_shop, receipt.txid) == 0
    assert well.lead() == 1
    well.answer()
    assert any_shop.state(receipt.txid) == "committed"


@pytest.mark.req("RMQ-58")
def test_what_a_checker_says_is_kept_whatever_letters_it_has(any_shop: Shop) -> None:
    def checker(question: Question) -> LocalState:
        raise OSError(f"no such file: {os.fsdecode(bytes([0xFF]))}\0")

    receipt = any_shop.producer(checker=checker).prepare_now(ORDERS, b"a chair")
    age(any_shop)
    assert any_shop.round() == 0
    (remark,) = any_shop.store.overview.remarks(receipt.txid)
    assert remark.why.startswith("the checker raised OSError: no such file: ")


@pytest.mark.parametrize("most", [3, 1])
def test_a_database_that_answers_for_few_at_once_is_asked_about_few(
    any_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Where late bodies are large, those of a thousand transactions don't come in time, and those of ten do."""
    till = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    member = Member(any_shop, till=till)
    left = []
    for n in range(7):
        tx = member.producer().transaction().__enter__()
        tx.send(order(str(n)))
        with tx.local("till"):
            pass
        assert tx.txid is not None
        left.append(tx.txid)
    _, evidence = member.kernel.resource("till")
    real_many, asked = evidence.read_many, list[int]()

    def read_many(ids: list[str]) -> object:
        asked.append(len(ids))
        if len(ids) > most:
            raise StoreUnavailable("canceling statement due to statement timeout")
        return real_many(ids)

    monkeypatch.setattr(evidence, "read_many", read_many)
    for _ in range(12):
        age(any_shop)
        member.lead()
    assert {any_shop.state(txid) for txid in left} == {"committed"}
    assert asked[:2] == [7, 3]
    monkeypatch.setattr(evidence, "read_many", real_many)


def test_a_database_that_is_back_is_asked_about_all_in_the_next_round(
    any_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(any_shop, till=create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool))
    for n in range(7):
        tx = member.producer().transaction().__enter__()
        tx.send(order(str(n)))
        with tx.local("till"):
            pass
    _, evidence = member.kernel.resource("till")

    def away(_: list[str]) -> object:
        raise StoreUnavailable("it is away")

    with monkeypatch.context() as patched:
        patched.setattr(evidence, "read_many", away)
        for _ in range(4):
            age(any_shop)
            member.lead()
    assert len(any_shop.pending()) == 7
    age(any_shop)
    member.lead()
    assert any_shop.pending() == []
