"""Half messages of a native RocketMQ as branches: kills, check-back, refusals, what official consumers get."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

import txsaga
from tests.gateway.native.dying import COMMITTED, MOMENTS
from tests.gateway.native.topics import RocketMQTopic
from tests.services.databases import fresh_name
from tests.services.rocketmq import RocketMqServer
from txsaga import errors
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.flows.branch import Vote
from txsaga.gateway.native import BRANCH, RocketMQ, check_settings
from txsaga.testing.participant_contract import new_branch
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
PATIENCE = 40.0
ROOT = Path(__file__).parents[3]
SETTINGS = {"transactionCheckInterval": "30000", "transactionTimeOut": "6000", "transactionOpBatchInterval": "3000"}
SETTINGS |= {"transactionCheckMax": "15", "rejectTransactionMessage": "false"}


def connected(url: str, topic: RocketMQTopic, **given: Any) -> Broker:
    return txsaga.connect(url, participants={"orders": topic.registered()}, env={}, **given)


@pytest.fixture
def broker(home_url: str, topic: RocketMQTopic) -> Iterator[Broker]:
    open_store(home_url).close()
    with connected(home_url, topic, roles=False) as broker:
        broker.create_topic("news", "transaction", queues=1)
        yield broker


@pytest.fixture
def consumer(topic: RocketMQTopic) -> Iterator[Any]:
    """Give RocketMQ's official consumer of the topic, unchanged."""
    configuration = ClientConfiguration(topic.server.endpoint, Credentials())
    consumer = SimpleConsumer(configuration, fresh_name("readers"), {topic.name: FilterExpression()}, 2)
    consumer.startup()
    yield consumer
    consumer.shutdown()


def received(consumer: Any, count: int) -> list[str]:
    """Return the keys of what an official consumer gets: so many, and what comes within three more checks."""
    found, end = list[str](), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for message in consumer.receive(16, 15) or []:
            found += message.keys
            consumer.ack(message)
            if len(found) == count:
                end = time.monotonic() + 4
    return sorted(found)


@pytest.mark.kill
@pytest.mark.req("IBM-40")
@pytest.mark.rule("R2", "R9")
def test_wherever_its_process_is_killed_consumers_get_each_committed_message_once(
    broker: Broker, home_url: str, topic: RocketMQTopic, consumer: Any
) -> None:
    places = [home_url, topic.server.endpoint, topic.server.name_server, topic.name]
    started = {
        moment: subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.native.dying", moment, *places, moment], cwd=ROOT
        )
        for moment in MOMENTS
    }
    for moment, process in started.items():
        assert process.wait(60) == -9, moment
    with connected(home_url, topic) as engine:
        assert received(consumer, len(COMMITTED)) == sorted(COMMITTED)
        news = engine.stream("readers", ["news"]).messages(wait=2)
        assert sorted(message.text() for message in news) == sorted(COMMITTED)
        assert not engine.kernel.store.work.unfinished(limit=1)
        assert not engine.kernel.reach("orders").prepared(engine.identity.uuid.hex)
