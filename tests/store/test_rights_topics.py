"""Topics that go, under logins that do not own the store: who creates them deletes them, and a sender is refused."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.apart import apart
from tests.scene.stored import Stored
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    made,
    open_as,
    operator,
    read,
    run_roles,
)
from txsaga import COMMIT, Message
from txsaga.broker import Broker
from txsaga.errors import GroupInUse, RightsMissing, TopicInUse, UnknownTopic
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres

CHANGES: list[Callable[[Broker], object]] = [
    lambda broker: broker.delete_topic("spare"),
    lambda broker: broker.purge_topic("spare"),
    lambda broker: broker.alter_topic("spare", type="fifo"),
]


@pytest.mark.parametrize("right", [Right.PRODUCER, Right.CONSUMER, Right.ENGINE])
def test_only_who_creates_topics_changes_them(open_as: Open, operator: Broker, right: Right) -> None:
    operator.create_topic("spare")
    broker = open_as(right)
    for change in CHANGES:
        with pytest.raises(RightsMissing):
            change(broker)
    for change in reversed(CHANGES):
        change(operator)


def test_an_operator_deletes_a_group(open_as: Open, operator: Broker, home_url: str) -> None:
    operator.create_topic("spare")
    open_as(Right.CONSUMER).consumer("billing", ["spare"]).receive()
    with pytest.raises(TopicInUse):
        operator.delete_topic("spare")
    operator.delete_group("billing")
    stream = open_as(Right.CONSUMER).stream("billing", ["spare"])
    stream.poll()
    with pytest.raises(GroupInUse):
        operator.delete_group("billing")
    stored = Stored(home_url)
    stored.rows("UPDATE lease SET until = now() WHERE kind LIKE 'member:%'")
    operator.delete_group("billing")
    assert stored.value("SELECT count(*) FROM lease WHERE kind LIKE 'member:%'") == 0
    operator.delete_topic("spare")


def in_a_block(producer: Producer, topic: str) -> object:
    with producer.transaction(key="order-42") as tx:
        tx.send(topic, b"a")
    return tx.decision


@pytest.mark.parametrize(
    "send",
    [
        lambda producer, topic: producer.prepare_now(topic, b"a"),
        lambda producer, topic: producer.send_message_in_transaction(Message(topic, b"a"), executor=lambda *_: COMMIT),
        in_a_block,
    ],
)
def test_a_producer_that_has_it_cached_is_refused(
    open_as: Open, operator: Broker, send: Callable[[TransactionMQProducer, str], object]
) -> None:
    operator.create_topic("spare", "transaction")
    producer = TransactionMQProducer(open_as(Right.PRODUCER), "shop", checker=lambda _: None)
    producer.commit(producer.prepare_now("spare", b"a"))
    apart(operator).delete_topic("spare")
    with pytest.raises(UnknownTopic, match="was deleted, or replaced"):
        send(producer, "spare")


def test_a_consumer_buries_in_the_topic_that_replaced_the_backout_topic(open_as: Open, operator: Broker) -> None:
    operator.create_topic("spare")
    operator.create_topic("bad", queues=1)
    operator.create_group("billing", backout="bad", max_attempts=1)
    producer = open_as(Right.PRODUCER).producer("shop")
    reader = open_as(Right.CONSUMER)
    consumer = reader.consumer("billing", ["spare"])
    for queues in (1, 4):
        if queues == 4:
            apart(operator).alter_group("billing", backout=None)
            apart(operator).delete_topic("bad")
            apart(operator).create_topic("bad", queues=queues)
            apart(operator).alter_group("billing", backout="bad")
        producer.send("spare", b"a")
        run_roles(open_as(Right.ENGINE))
        (message,) = consumer.receive()
        message.nack(cause="broken")
        run_roles(open_as(Right.ENGINE))
        assert read(reader, "bad") == [b"a"]
        operator.delete_group("readers")
