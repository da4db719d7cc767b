"""User code that hangs is waited for once and for a while; what it was asked about waits, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.engine.members import QUICK, Member, age, checks, remarks
from tests.engine.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, UNKNOWN
from txsaga.model.checks import CheckProfile
from txsaga.ports.runs import RunState

LAST = CheckProfile(interval=QUICK.interval, max_checks=1)


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Give the event that ends what hangs; nobody waits for long."""
    monkeypatch.setattr("txsaga.engine.beside.PATIENCE", 0.2)
    with ExitStack() as leaving:
        event = threading.Event()
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
