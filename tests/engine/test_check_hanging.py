"""User code that hangs is waited for once and for a while; what it was asked about waits, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.engine.members import QUICK, Member, age, checks, counted, remarks, until
from tests.engine.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, UNKNOWN, LocalState
from txsaga.model.checks import CheckProfile
from txsaga.ports.runs import RunState

LAST = CheckProfile(interval=QUICK.interval, max_checks=1)


waited_for: list[threading.Event] = []


def hangs(_: object) -> LocalState:
    """Answer when the test is over."""
    waited_for[-1].wait(30)
    return COMMIT


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Give the event that ends what hangs; nobody waits for long."""
    monkeypatch.setattr("txsaga.engine.beside.PATIENCE", 0.2)
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
    named = "checker tests.engine.test_check_hanging.hangs of group 'slow' has not returned for 0 s"
    assert sum(("UNKNOWN", named) in remarks(any_shop, txid) for txid in hung) == 2
    assert sum(named in each.message for each in caplog.records if each.levelname == "WARNING") == 2
    (left,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert "answers for group 'slow' no more: 2 of its checkers hang" in left and named[:-5] in left

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
    assert "answers for group 'slow' again" in caplog.text


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
