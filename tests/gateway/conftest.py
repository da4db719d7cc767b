"""A store with a topic of each type, a gateway on it, and a client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import txsaga
from tests.gateway.calling import RawClient, listening
from tests.scene.fixtures import stored  # noqa: F401  # a fixture
from txsaga.broker import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.role_loop import Loop
from txsaga.messages.scheduler import Scheduler
from txsaga.wiring.connecting import open_store


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, env={}) as broker:
        broker.create_topic("news", "normal", queues=2)
        broker.create_topic("lines", "fifo", queues=2)
        broker.create_topic("later", "delay", queues=1)
        broker.create_topic("orders", "transaction", queues=1, retention=timedelta(days=1))
        delivering = Loop([Dispatcher(broker.kernel), Scheduler(broker.kernel)], broker.kernel.jitter)
        delivering.start()
        yield broker
        delivering.stop()


@pytest.fixture
def gateway(broker: Broker) -> Iterator[str]:
    with listening(broker) as address:
        yield address


@pytest.fixture
def client(gateway: str) -> Iterator[RawClient]:
    with RawClient(gateway) as client:
        yield client
