"""Topics as queues of Airflow's common messaging."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.errors import ConfigError
from txsaga.provider.assets import TxSagaQueues
from txsaga.provider.info import get_provider_info
from txsaga.provider.triggers import WakeUpTrigger

OURS = "txsaga://txsaga_default/orders/billing"
QUEUES = TxSagaQueues()


async def first(trigger: Any) -> Any:
    """Return the first event of a trigger."""
    async with asyncio.timeout(30), aclosing(trigger.run()) as events:
        async for event in events:
            return event.payload


@pytest.fixture
def topic(house: House) -> str:
    """Give a topic with a message."""
    name = house.topic(fresh_name("queue"), "normal")
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        broker.producer("sender").send(name, b"x")
    house.seen(name)
    return name


def test_the_queues_are_told_to_airflow() -> None:
    assert get_provider_info()["queues"] == [f"{TxSagaQueues.__module__}.{TxSagaQueues.__name__}"]


def test_a_uri_names_store_topic_and_group() -> None:
    assert QUEUES.queue_matches(OURS)
    assert not QUEUES.queue_matches("kafka://txsaga/orders")
    assert (QUEUES.scheme_matches("txsaga"), QUEUES.scheme_matches("kafka")) == (True, False)
    assert QUEUES.trigger_kwargs(OURS) == {"store": "txsaga_default", "topic": "orders", "group": "billing"}
    assert QUEUES.trigger_kwargs("txsaga://s/orders", group="b", every=5) == {"store": "s", "topic": "orders"}


@pytest.mark.parametrize(
    ("uri", "said", "line"),
    [
        ("txsaga://s", {}, "names no topic"),
        ("txsaga://s/orders", {}, "with group="),
        ("txsaga:///orders/billing", {}, "names no topic"),
        ("txsaga://s/orders/billing/more", {}, "names no topic"),
        (OURS, {"group": "b"}, "says group too; set it once"),
    ],
)
def test_a_uri_that_names_none_is_refused(uri: str, said: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        QUEUES.trigger_kwargs(uri, **said)


def test_the_trigger_of_a_queue_fires_while_messages_wait(topic: str) -> None:
    trigger = QUEUES.trigger_class()(**QUEUES.trigger_kwargs(f"txsaga://txsaga_default/{topic}/billing"))
    assert asyncio.run(first(trigger)) == {"topic": topic, "group": "billing", "messages": 1, "new": 1}


def test_the_trigger_of_common_messaging_is_ours(topic: str) -> None:
    messages = pytest.importorskip("airflow.providers.common.messaging.triggers.msg_queue")
    trigger = messages.MessageQueueTrigger(scheme="txsaga", topic=topic, group="billing")
    assert isinstance(trigger.trigger, WakeUpTrigger)
    assert trigger.serialize() == WakeUpTrigger(topic=topic, group="billing").serialize()
    assert asyncio.run(first(trigger))["new"] == 1
