"""A topic of a native RocketMQ keeps every promise of a participant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gateway.native.topics import RocketMQTopic, TopicShelf
from tests.services.databases import fresh_name
from tests.services.rocketmq import RocketMqServer
from txsaga.gateway.native import RocketMQParticipant
from txsaga.store.store import Store
from txsaga.testing import ParticipantContract
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
Registered = Callable[[RocketMQTopic], RocketMQParticipant]


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def registered(store: Store) -> Iterator[Registered]:
    """Give what registers a topic, as one more process does."""
    made: list[RocketMQParticipant] = []

    def register(topic: RocketMQTopic) -> RocketMQParticipant:
        made.append(topic.registered().participant(topic.name, store))
        return made[-1]

    yield register
    for each in made:
        each.close()


@pytest.fixture
def participant(topic: RocketMQTopic, registered: Registered) -> RocketMQParticipant:
    return registered(topic)


@pytest.fixture
def another(topic: RocketMQTopic, registered: Registered) -> RocketMQParticipant:
    return registered(topic)


@pytest.fixture
def shelf(topic: RocketMQTopic, another: RocketMQParticipant, store: Store) -> TopicShelf:
    return TopicShelf(topic, another, store)


@pytest.fixture
def next_door(rocketmq: RocketMqServer, registered: Registered, store: Store) -> tuple[RocketMQParticipant, TopicShelf]:
    topic = RocketMQTopic(rocketmq, rocketmq.topic(fresh_name("orders")))
    participant = registered(topic)
    return participant, TopicShelf(topic, participant, store)


class TestNative(ParticipantContract):
    """The published suite."""

    keeps = False
