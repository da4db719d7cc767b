"""Whoever works for long holds its work, whatever else the process was told not to do."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

import txsaga
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.core import facts
from txsaga.core.role_loop import Pace
from txsaga.rocketmq import TransactionMQProducer
from txsaga.wiring import connecting
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def watched(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, threading.Event, list[str]]]:
    """Give a broker that neither runs roles nor answers, the first renewal of its leases, and what it did besides."""
    held, seen = threading.Event(), list[str]()

    def watch(fact: facts.Fact) -> None:
        seen.append(type(fact).__name__)
        if isinstance(fact, facts.Held):
            held.set()

    monkeypatch.setattr(connecting, "HEARTBEAT", True)
    monkeypatch.setattr(Heartbeat, "pace", Pace(0.01, 0.01))
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, observers=[watch], env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        yield broker, held, seen


@pytest.mark.rule("R13")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_a_process_that_answers_nobody_still_holds_what_it_works_on(
    watched: tuple[Broker, threading.Event, list[str]], key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.checkback.work_in_progress.TYPICAL", 0.0)
    broker, held, seen = watched
    with broker.producer("shop", checker=lambda _: None).transaction(key=key) as tx:
        tx.send("orders", b"a chair")
        tx.prepare()
        for _ in range(2):  # the first may have been begun before that
            held.clear()
            assert held.wait(10)
        assert tx.txid is not None
        checks = broker.kernel.store.overview.checks(tx.txid)
        assert checks is not None and checks.asked == 0
    assert "Enlisting" not in seen


def test_what_is_over_soon_is_held_by_nobody(watched: tuple[Broker, threading.Event, list[str]]) -> None:
    broker, held, _ = watched
    with broker.producer("shop", checker=lambda _: None).transaction(key="order-42") as tx:
        tx.send("orders", b"a chair")
        assert not held.wait(0.2)


@pytest.mark.req("RMQ-29")
@pytest.mark.parametrize("answering", [True, False])
def test_what_a_hasty_group_works_on_is_held_before_anybody_asks(
    home_url: str, monkeypatch: pytest.MonkeyPatch, answering: bool
) -> None:
    """Another group's work has begun the heartbeat, which would rest for two seconds."""
    held = threading.Event()

    def watch(fact: facts.Fact) -> None:
        if isinstance(fact, facts.Held):
            held.set()

    monkeypatch.setattr(connecting, "HEARTBEAT", True)
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=answering, observers=[watch], env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        with broker.producer("patient", checker=lambda _: None).transaction(key="order-41") as tx:
            tx.send("orders", b"a table")
        broker.producer("hasty", checker=lambda _: None)
        broker.set_checks("hasty", min_age=timedelta(seconds=1.5))

        def local(*_: object) -> txsaga.LocalState:
            assert held.wait(1.9)
            return txsaga.COMMIT

        chair = txsaga.Message.text("orders", "a chair")
        TransactionMQProducer(broker, "hasty", checker=lambda _: None).send_message_in_transaction(
            chair, executor=local
        )
        assert held.is_set()


def test_a_broker_that_is_closed_starts_nothing_again(watched: tuple[Broker, threading.Event, list[str]]) -> None:
    broker, _, _ = watched
    running: Callable[[], bool] = lambda: any(t.name == "txsaga-heartbeat" for t in threading.enumerate())  # noqa: E731
    block = broker.producer("shop", checker=lambda _: None).transaction(key="order-42")
    block.__enter__()
    assert running()
    broker.close()
    broker.kernel.running.begin(block, block._contribution.doubt())
    assert not running()
