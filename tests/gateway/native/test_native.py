"""Half messages of a native RocketMQ as branches: kills, check-back, refusals, what official consumers get."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

import txsaga
from tests.gateway.native.dying import COMMITTED, MOMENTS
from tests.gateway.native.topics import RocketMQTopic
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.gateway.proxy_client import ProxyClient
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
PATIENCE = 40.0
SOON = ("--check-interval", "1s", "--min-age", "1s")
ROOT = Path(__file__).parents[3]


def connected(url: str, topic: RocketMQTopic, **given: Any) -> Broker:
    return txsaga.connect(url, participants={"orders": topic.registered()}, env={}, **given)


@contextmanager
def engine(url: str, topic: RocketMQTopic, folder: Path) -> Iterator[None]:
    """Run `txsaga engine`, with the topic as a participant, in a process of its own."""
    place = f"{topic.server.endpoint!r}, topic={topic.name!r}, name_server={topic.server.name_server!r}, undecided=10"
    (folder / "shop.py").write_text(f"from txsaga.gateway.native import RocketMQ\norders = RocketMQ({place})\n")
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{folder}",
        "TXSAGA_URL": url,
        "TXSAGA_PARTICIPANT_ORDERS": "shop:orders",
    }
    process = subprocess.Popen([sys.executable, "-m", "txsaga.cli", "engine", *SOON], env=env)
    yield
    process.terminate()
    assert process.wait(30) == 0


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
    broker: Broker, home_url: str, topic: RocketMQTopic, consumer: Any, tmp_path: Path
) -> None:
    places = [home_url, topic.server.endpoint, topic.server.name_server, topic.name]
    started = {
        moment: subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.native.dying", moment, *places, moment], cwd=ROOT
        )
        for moment in MOMENTS
    }
    assert {moment: process.wait(60) for moment, process in started.items()} == dict.fromkeys(MOMENTS, -SIGKILL)
    with engine(home_url, topic, tmp_path):
        assert received(consumer, len(COMMITTED)) == sorted(COMMITTED)
        until(lambda: not held(broker))
        news = broker.stream("readers", ["news"]).messages(wait=5)
        assert sorted(message.text() for message in news) == sorted(COMMITTED)
    assert asked_about(topic) == []


def held(broker: Broker) -> bool:
    """Tell whether a branch is not finished, or RocketMQ's half waits for one."""
    unfinished = broker.kernel.store.work.unfinished(limit=1)
    return bool(unfinished or broker.kernel.reach("orders").prepared(broker.identity.uuid.hex))


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def asked_about(topic: RocketMQTopic, seconds: float = 3) -> list[str]:
    """Return the ids of the halves that RocketMQ asks about in the time of several checks; answer nothing."""
    asked: list[str] = []
    client = ProxyClient(
        topic.server.endpoint, topic.name, lambda message: asked.append(message.system_properties.message_id)
    )
    client.listen()
    time.sleep(seconds)
    client.close()
    return asked
