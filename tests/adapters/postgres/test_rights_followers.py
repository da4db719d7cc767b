"""Telling who follows flows, under logins that do not own the store: it takes the consumer right beside engine."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from datetime import datetime

import pytest

from tests.adapters.postgres.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
    run_roles,
)
from txsaga.engine.broker import Broker
from txsaga.engine.flows.telling import Telling
from txsaga.model.follow_up import TOPIC, AssetName, FollowUp
from txsaga.model.rights import Right

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


@pytest.fixture
def told(open_as: Open, operator: Broker, engine: Broker) -> int:
    """Give a flow that committed with followers, behind a message that no flow wrote."""
    operator.create_topic(TOPIC, "transaction", queues=1)
    producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
    with producer.transaction() as transaction:
        transaction.send(TOPIC, b"[]")
    flow = producer.begin_flow(key="a")
    with flow.step("tell"):
        assets = (AssetName("moved", None),)
        flow.send(TOPIC, FollowUp(run="airflow:a/b", txid=flow.txid, id=flow.id, assets=assets).body())
    flow.end()
    run_roles(engine)
    return flow.txid


def test_with_the_consumer_right_an_engine_tells_each_commit_once(
    open_as: Open, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker, heard = open_as(Right.ENGINE, Right.CONSUMER), Heard()
    for _ in range(2):
        Telling(broker.kernel, heard, broker.consumer).run_once()
    assert heard.txids == [told]
    assert "is left out, no flow wrote it" in caplog.text


def test_without_it_an_engine_says_so_once_and_goes_on(
    engine: Broker, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    telling = Telling(engine.kernel, heard, engine.consumer)
    assert [telling.run_once(), telling.run_once()] == [0, 0]
    assert heard.txids == []
    assert caplog.text.count("nobody is told here") == 1


def test_without_a_flow_that_is_followed_there_is_nothing_to_tell(engine: Broker, operator: Broker) -> None:
    assert Telling(engine.kernel, Heard(), engine.consumer).run_once() == 0
    assert engine.kernel.store.groups.find(f"{TOPIC}-north") is None
