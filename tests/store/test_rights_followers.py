"""Telling who follows flows, under logins that do not own the store: it takes the consumer right beside engine."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
    run_roles,
)
from txsaga.airflow_host.followers import TOPIC, AssetName, FollowUp, FollowUpRole
from txsaga.broker import Broker
from txsaga.flows.flow import Flow
from txsaga.messages.producer import Producer
from txsaga.store.right import Right

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R18")]


class Heard:
    """Followers that remember what they were told."""

    name = "north"

    def __init__(self) -> None:
        self.txids: list[int] = []

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Take it."""
        assert since.tzinfo is not None
        self.txids.append(committed.txid)
        return True


MOVED = (AssetName("moved", None),)


def is_told(flow: Flow, about: FollowUp) -> None:
    """Let a flow commit with what it says of itself, or of another."""
    with flow.step("tell"):
        flow.send(TOPIC, about.body())
    flow.end()


def said(flow: Flow, run: str = "airflow:a/b") -> FollowUp:
    """Return what a flow says of itself."""
    return FollowUp(run=run, txid=flow.txid, id=flow.id, assets=MOVED)


@pytest.fixture
def producer(open_as: Open, operator: Broker) -> Producer:
    """Give what may send, and may make no event."""
    operator.create_topic(TOPIC, "transaction", queues=1)
    return open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)


@pytest.fixture
def told(producer: Producer, engine: Broker) -> int:
    """Give a flow that committed with followers, behind a message that no flow wrote."""
    with producer.transaction() as transaction:
        transaction.send(TOPIC, b"[]")
    flow = producer.begin_flow(key="a", run="airflow:a/b")
    is_told(flow, said(flow))
    run_roles(engine)
    return flow.txid


def test_with_the_consumer_right_an_engine_tells_each_commit_once(
    open_as: Open, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker, heard = open_as(Right.ENGINE, Right.CONSUMER), Heard()
    for _ in range(2):
        FollowUpRole(broker.kernel, heard, broker.consumer).run_once()
    assert heard.txids == [told]
    assert "is ignored, not written by its flow" in caplog.text


def test_what_a_transaction_says_of_another_or_of_another_run_is_left_out(
    open_as: Open, producer: Producer, told: int, engine: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    other, stranger, nobody = (
        producer.begin_flow(key=key, run=run) for key, run in (("b", "airflow:a/b"), ("c", "airflow:a/c"), ("d", None))
    )
    is_told(other, replace(said(other), txid=told, id=other.id.rpartition("-")[0] + f"-{told:x}"))
    is_told(stranger, said(stranger))
    is_told(nobody, said(nobody))
    with producer.transaction() as transaction:
        transaction.send(TOPIC, replace(said(other), run="None").body())
    run_roles(engine)
    broker, heard = open_as(Right.ENGINE, Right.CONSUMER), Heard()
    telling = FollowUpRole(broker.kernel, heard, broker.consumer)
    while telling.run_once():
        pass
    assert heard.txids == [told]
    assert caplog.text.count("is ignored, not written by its flow") == 5
    assert "is not of run airflow:a/b" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"run": "airflow:a/b", "txid": Infinity, "id": "x", "assets": []}',
        b"[" * 100_000,
        b'{"run": "airflow:a/b", "txid": 1, "id": "x", "assets": [{}]}',
        b'{"run": "airflow:a/b", "txid": 1, "id": "x", "assets": [{"name": "\\ud800"}]}',
    ],
)
def test_what_can_not_be_read_is_left_out_and_the_next_is_told(
    open_as: Open, producer: Producer, engine: Broker, body: bytes
) -> None:
    with producer.transaction() as transaction:
        transaction.send(TOPIC, body)
    flow = producer.begin_flow(key="a", run="airflow:a/b")
    is_told(flow, said(flow))
    run_roles(engine)
    broker, heard = open_as(Right.ENGINE, Right.CONSUMER), Heard()
    assert FollowUpRole(broker.kernel, heard, broker.consumer).run_once() == 2
    assert heard.txids == [flow.txid]


def test_without_it_an_engine_says_so_once_and_goes_on(
    engine: Broker, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    telling = FollowUpRole(engine.kernel, heard, engine.consumer)
    assert [telling.run_once(), telling.run_once()] == [0, 0]
    assert heard.txids == []
    assert caplog.text.count("can't create asset events") == 1


def test_without_a_flow_that_is_followed_there_is_nothing_to_tell(engine: Broker, operator: Broker) -> None:
    assert FollowUpRole(engine.kernel, Heard(), engine.consumer).run_once() == 0
    assert engine.kernel.store.groups.find(f"{TOPIC}-north") is None
