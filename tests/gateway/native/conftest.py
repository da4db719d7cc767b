"""One RocketMQ for these tests, and a topic of its own for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.native.topics import RocketMQTopic
from tests.services.databases import fresh_name
from tests.services.rocketmq import QUICK, RocketMqServer, rocketmq_server


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketMqServer]:
    """Give the RocketMQ of this session, which checks every second."""
    with rocketmq_server(**QUICK) as running:
        yield running


@pytest.fixture
def topic(rocketmq: RocketMqServer) -> RocketMQTopic:
    """Give a topic that nobody has used."""
    return RocketMQTopic(rocketmq, rocketmq.topic(fresh_name("orders")))
