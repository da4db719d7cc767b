"""User code that raises what ends a thread ends none of ours."""

from __future__ import annotations

import logging
import sys
from asyncio import CancelledError
from typing import NoReturn

import pytest

from tests.scene.members import QUICK, Member, age, checks, remarks, until
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, UNKNOWN
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.runs import RunState
from txsaga.core.role_loop import Loop, Pace

ENDS = [SystemExit, CancelledError]


@pytest.mark.hole("H5")
@pytest.mark.req("RMQ-93")
@pytest.mark.parametrize("ends", ENDS)
def test_a_checker_that_would_end_its_thread_said_nothing_and_the_next_one_is_asked(
    moody_shop: Shop, ends: type[BaseException]
) -> None:
    def checker(_: object) -> NoReturn:
        raise ends("enough")

    member = Member(moody_shop, threads=1)
    bad = member.producer("bad", checker=checker).prepare_now(ORDERS, b"")
    good = member.producer("good", checker=says(COMMIT)).prepare_now(ORDERS, b"")
    age(moody_shop)
    member.beat()
    member.lead()
    member.answer()
    assert remarks(moody_shop, bad.txid) == [("UNKNOWN", f"the checker raised {ends.__name__}: enough")]
    assert moody_shop.state(good.txid) == "committed"


@pytest.mark.hole("H5")
def test_an_end_hook_that_would_end_the_thread_of_a_checker_leaves_the_question_unanswered(moody_shop: Shop) -> None:
    member = Member(moody_shop, threads=1)
    producer = member.producer(checker=says(UNKNOWN))
    receipts = [producer.prepare_now(ORDERS, b"") for _ in range(2)]
    member.kernel.settler.report = lambda *_: sys.exit(3)  # type: ignore[method-assign]
    age(moody_shop)
    member.beat()
    member.lead()
    member.answer()
    assert [remarks(moody_shop, each.txid) for each in receipts] == [[("UNKNOWN", "SystemExit: 3")]] * 2


@pytest.mark.req("RMQ-78")
@pytest.mark.parametrize("ends", ENDS)
def test_a_handler_that_would_end_the_role_parks_what_it_was_called_for(
    moody_shop: Shop, ends: type[BaseException]
) -> None:
    def handler(_: object) -> NoReturn:
        raise ends("enough")

    member = Member(moody_shop)
    txid = member.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, b"").txid
    member.broker.when_exhausted("shop", handler)
    age(moody_shop)
    member.beat()
    last = CheckProfile(interval=QUICK.interval, max_checks=1)
    for _ in range(2):
        member.lead(last)
        member.answer()
    assert moody_shop.state(txid) == "parked"


@pytest.mark.rule("R5")
@pytest.mark.parametrize("ends", ENDS)
def test_a_host_of_flows_that_would_end_the_role_has_not_said_that_the_run_is_over(
    moody_shop: Shop, ends: type[BaseException]
) -> None:
    class Host:
        def state(self, run: str) -> RunState:
            raise ends(run)

    member = Member(moody_shop)
    member.broker.ask_runs(Host())
    tx = member.producer(checker=says(UNKNOWN)).transaction(key="order-42", run="flow-1").__enter__()
    tx.send(order())
    tx.prepare()
    age(moody_shop)
    member.beat()
    member.lead()
    assert tx.txid is not None and checks(moody_shop, tx.txid).asked == 0


def test_a_role_goes_on_whatever_is_raised_in_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.core.role_loop.AFTER_ERROR", 0.0)

    class Leaving:
        name, pace = "leaving", Pace(0.0, 0.0)
        rounds = 0

        def run_once(self) -> int:
            self.rounds += 1
            sys.exit(self.rounds)

    role = Leaving()
    loop = Loop([role])
    with caplog.at_level(logging.CRITICAL, "txsaga"):
        loop.start()
        until(lambda: role.rounds > 1)
        loop.stop()
