"""What may be sent where: types of topics, system names, one half store that nobody subscribes to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.scene.shop import NEWS, ORDERS, QUEUES, Shop, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, Message, TopicType
from txsaga.consume.claim import Policy, Style
from txsaga.core.topic import HALF_TOPIC, OP_TOPIC, PARKED_TOPIC, SYSTEM_TOPICS
from txsaga.errors import (
    ConfigError,
    InvalidMessage,
    ReservedName,
    TopicTypeMismatch,
    TxSagaError,
    UnknownTopic,
)
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer

Way = Callable[[Shop, TransactionMQProducer, str], object]


def plainly(shop: Shop, producer: Producer, topic: str) -> object:
    return producer.send(topic, b"a chair", ordering_key="42")


def as_a_half(shop: Shop, producer: Producer, topic: str) -> object:
    return producer.prepare_now(topic, b"a chair", ordering_key="42")


def with_local_work(shop: Shop, producer: TransactionMQProducer, topic: str) -> object:
    return producer.send_message_in_transaction(Message(topic, b"a chair", ordering_key="42"), executor=says(COMMIT))


def in_a_block(shop: Shop, producer: Producer, topic: str) -> object:
    with producer.transaction() as tx:
        tx.send(topic, b"a chair", ordering_key="42")
    return tx.decision


def in_a_keyed_block(shop: Shop, producer: Producer, topic: str) -> object:
    with producer.transaction(key="order-42") as tx:
        tx.send(topic, b"a chair", ordering_key="42")
    return tx.decision


def joined(shop: Shop, producer: Producer, topic: str) -> object:
    with shop.store.engine.begin() as connection:
        return producer.join(connection).send(topic, b"a chair")


WAYS = [plainly, as_a_half, with_local_work, in_a_block, in_a_keyed_block, joined]
HALVES = {as_a_half, with_local_work, in_a_block, in_a_keyed_block}
TAKES: dict[TopicType, set[Way]] = {
    TopicType.NORMAL: {plainly, joined},
    TopicType.FIFO: {plainly, *HALVES},
    TopicType.DELAY: set(),  # nothing is delayed yet
    TopicType.TRANSACTION: {joined, *HALVES},
}


@pytest.mark.req("RMQ-65")
@pytest.mark.conf("COM-01", "BRK-60", "RC-C11")
@pytest.mark.parametrize("type", TopicType)
def test_a_topic_takes_only_what_its_type_allows(shop: Shop, type: TopicType) -> None:
    """The message type of the cases is the way of sending here: a half is of type TRANSACTION."""
    shop.broker.create_topic("typed", type)
    producer = shop.mq_producer()
    for way in WAYS:
        if way in TAKES[type]:
            way(shop, producer, "typed")
        elif type is TopicType.DELAY and way is plainly:
            with pytest.raises(InvalidMessage, match="delayed messages only"):
                way(shop, producer, "typed")
        else:
            with pytest.raises(TopicTypeMismatch, match=f"'typed' is of type {type}; .* needs a topic of type"):
                way(shop, producer, "typed")
    assert len(shop.bodies("typed")) == len(TAKES[type] - {as_a_half})


@pytest.mark.conf("COM-02", "BRK-61", "RC-X1")
def test_a_half_stays_a_half_whatever_else_it_carries(shop: Shop) -> None:
    """TRANSACTION comes before DELAY and FIFO: an ordering key and a delay make no other message of a half.

    The C++ client refuses a half with a message group; here order within a key is kept (RMQ-63), and what
    is refused is a topic of another type.
    """
    producer = shop.mq_producer()
    message = order(ordering_key="42", delay=timedelta(seconds=10))
    result = producer.send_message_in_transaction(message, executor=says(COMMIT))
    assert shop.transaction(result.queue_offset).state == "committed"
    (delivered,) = shop.read()
    assert delivered.ordering_key == "42"
    with pytest.raises(TopicTypeMismatch, match="a transactional send needs"):
        producer.send_message_in_transaction(Message("news", b"", ordering_key="42"), executor=says(COMMIT))


@pytest.mark.conf("COM-03")
def test_there_are_four_types_of_topics(shop: Shop) -> None:
    """UNSPECIFIED and MIXED are left out on purpose: a topic that takes anything promises nothing."""
    assert sorted(TopicType) == ["delay", "fifo", "normal", "transaction"]
    for name in ("mixed", "unspecified", ""):
        with pytest.raises(ConfigError, match="is none of normal, fifo, delay, transaction"):
            shop.broker.create_topic("some", name)


@pytest.mark.req("RMQ-97")
@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "rmq_sys_mine", "RMQ_SYS_", HALF_TOPIC.lower()])
def test_a_system_name_is_never_the_users(shop: Shop, name: str) -> None:
    producer, plain = shop.mq_producer(), shop.broker.producer("plain")
    attempts: list[Callable[[], object]] = [
        lambda: shop.broker.create_topic(name, "transaction"),
        lambda: producer.prepare_now(name, b""),
        lambda: producer.send_message_in_transaction(Message(name, b""), executor=says(COMMIT)),
        lambda: plain.send(name, b""),
        lambda: plain.send_many(name, [b""]),
        lambda: joined(shop, plain, name),
        lambda: shop.broker.producer(name),
        lambda: shop.broker.stream(name, [ORDERS]),
    ]
    for attempt in attempts:
        with pytest.raises(ReservedName, match="system name"):
            attempt()
    assert shop.listed() == []


@pytest.mark.req("RMQ-97")
def test_a_system_name_is_not_created_by_the_first_send_either(shop: Shop, stored: Stored) -> None:
    shop.broker.kernel.topics._auto_create = True
    with pytest.raises(ReservedName):
        shop.producer().prepare_now(PARKED_TOPIC, b"")
    assert shop.producer().prepare_now("made.by.a.send", b"")
    assert stored.rows("SELECT name FROM topic WHERE name ILIKE 'rmq%' OR name ILIKE 'trans%'") == []


@pytest.mark.req("RMQ-17", "RMQ-22")
@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_no_consumer_group_subscribes_to_halves_or_decisions(shop: Shop, topic: str) -> None:
    shop.producer().commit(shop.producer().prepare_now(ORDERS, b"a chair"))
    for topics in ([topic], [ORDERS, topic]):
        with pytest.raises(ReservedName):
            shop.broker.stream("billing", topics)


@pytest.mark.req("RMQ-17", "RMQ-03")
def test_a_raw_read_finds_no_half(shop: Shop) -> None:
    shop.producer().prepare_now(ORDERS, b"a chair")
    shop.deliver()
    with pytest.raises(UnknownTopic):
        shop.store.registry.topic(HALF_TOPIC)
    queues = [qid for topic in shop.store.registry.topics() for qid in topic.qids]
    assert [entry for qid in queues for entry in shop.store.log.fetch(qid, 0, 100)] == []


@pytest.mark.conf("BRK-22")
def test_the_half_topic_has_one_queue(shop: Shop) -> None:
    receipts = [shop.producer().prepare_now(ORDERS, b"", key=str(n)) for n in range(20)]
    views = [shop.view(receipt.txid) for receipt in receipts]
    assert {view.real_queue for view in views} == set(range(QUEUES))
    assert {(view.topic, view.queue) for view in views} == {(HALF_TOPIC, 0)}


def test_a_topic_that_does_not_exist_is_named(shop: Shop) -> None:
    with pytest.raises(UnknownTopic, match="'chairs' does not exist; create it") as raised:
        shop.mq_producer().send_message_in_transaction(Message("chairs", b""), executor=says(COMMIT))
    assert isinstance(raised.value, TxSagaError)


def test_what_has_a_name_from_before_the_rule_works_on(shop: Shop) -> None:
    store = shop.broker.kernel.store
    with pytest.raises(InvalidMessage, match="begins with"):
        shop.broker.create_topic("%RETRY%old")
    with pytest.raises(InvalidMessage, match="begins with"):
        shop.broker.producer(".old")
    with pytest.raises(InvalidMessage, match="begins with"):
        shop.broker.consumer("-old", [NEWS])
    store.registry.create_topic("%RETRY%old", TopicType.NORMAL, 1, None, None)
    store.registry.group(".old", transactional=False)
    store.groups.open("-old", Style.WORK, Policy())
    shop.broker.create_topic("%RETRY%old", queues=1)
    shop.broker.producer(".old").send("%RETRY%old", b"a")
    shop.deliver()
    (message,) = shop.broker.consumer("-old", ["%RETRY%old"]).receive()
    assert message.body == b"a"
