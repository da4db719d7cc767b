"""Messages for later, from the producer to the reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pendulum
import pytest

import txsaga
from tests.contracts.timing import IN_TIME, OVER
from tests.oracle import MemoryStore
from tests.scene.fake_store import broker_on
from tests.scene.shop import NEWS, ORDERS, Shop, closing, says
from tests.scene.stored import Stored
from txsaga import COMMIT, Message, TopicType
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.facts import Fact
from txsaga.errors import DecidedOtherwise, EndRefused, InvalidMessage, UnknownTransaction
from txsaga.messages.scheduler import Scheduler
from txsaga.testing import FakeClock
from txsaga.wiring.connecting import open_store

LATER = "later"
SOON = timedelta(seconds=IN_TIME)


def come(shop: Shop) -> list[str]:
    """Let what is due be committed and delivered, and read it all."""
    while Scheduler(shop.broker.kernel).run_once():
        pass
    return shop.bodies(LATER)


@pytest.fixture
def later_shop(home_url: str) -> Iterator[Shop]:
    """Give a shop with a topic for later, whose time passes as its store's clock does."""
    open_store(home_url).close()
    broker = txsaga.connect(home_url, roles=False, answering=False, env={})
    with closing(Shop(broker, Stored(home_url).let_all_pass)) as shop:
        shop.broker.create_topic(LATER, TopicType.DELAY, queues=1)
        yield shop


def now(shop: Shop) -> datetime:
    """Ask the store's clock."""
    return shop.view(shop.broker.producer("plain").send(NEWS, b"now").txid).born


WAYS: dict[str, Callable[[Shop], object]] = {
    "send": lambda shop: shop.broker.producer("plain").send(LATER, b"1", delay=SOON),
    "submit": lambda shop: shop.broker.producer("plain").submit(LATER, b"1", delay=SOON).result(),
    "message": lambda shop: shop.broker.producer("plain").send(Message(LATER, b"1", delay=SOON)),
    "moment": lambda shop: shop.broker.producer("plain").send(LATER, b"1", deliver_at=now(shop) + SOON),
    "pendulum": lambda shop: shop.broker.producer("plain").send(
        LATER, b"1", deliver_at=pendulum.instance(now(shop) + SOON).in_timezone("Asia/Tokyo")
    ),
    "transactional": lambda shop: shop.producer().send(LATER, b"1", delay=SOON),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_delayed_message_comes_when_it_is_due(later_shop: Shop, way: str) -> None:
    WAYS[way](later_shop)
    assert come(later_shop) == []
    later_shop.later(OVER)
    assert come(later_shop) == ["1"]
    assert come(later_shop) == ["1"]


def test_a_delayed_message_arrives_as_it_was_sent(later_shop: Shop) -> None:
    sent = Message(LATER, b"1", key="k", tag="t", headers={"a": "b"}, ordering_key="o", unique_key="u", delay=SOON)
    receipt = later_shop.broker.producer("plain").send(sent)
    later_shop.later(OVER)
    assert come(later_shop) == ["1"]
    (message,) = later_shop.read(LATER)
    for name in ("key", "tag", "headers", "ordering_key", "unique_key"):
        assert getattr(message, name) == getattr(sent, name)
    assert message.half.txid == receipt.txid


def test_delayed_messages_come_in_the_order_in_which_they_are_due(later_shop: Shop) -> None:
    producer = later_shop.broker.producer("plain")
    start = now(later_shop)
    for text, milliseconds in {"c": 30, "a": 10, "d": 40, "b": 20}.items():
        producer.send(Message.text(LATER, text, deliver_at=start + timedelta(milliseconds=milliseconds)))
    producer.send(LATER, b"past", deliver_at=datetime(2000, 1, 1, tzinfo=UTC))
    later_shop.later(0.1)
    assert come(later_shop) == ["past", "a", "b", "c", "d"]


def test_a_message_can_be_recalled_until_it_is_delivered(later_shop: Shop) -> None:
    producer = later_shop.broker.producer("plain")
    kept, taken = (producer.send(LATER, body, delay=SOON) for body in (b"kept", b"taken"))
    assert producer.recall(taken).won
    assert not producer.recall(taken).won  # once more is no error
    later_shop.later(OVER)
    assert come(later_shop) == ["kept"]
    with pytest.raises(DecidedOtherwise, match="already decided: COMMIT"):
        producer.recall(kept)
    assert [later_shop.state(receipt.txid) for receipt in (kept, taken)] == ["committed", "rolled_back"]


def test_a_message_is_recalled_by_its_own_group_and_token(later_shop: Shop) -> None:
    producer = later_shop.broker.producer("plain")
    receipt = producer.send(LATER, b"1", delay=SOON)
    with pytest.raises(EndRefused, match="producer group wrong"):
        later_shop.broker.producer("other").recall(receipt)
    with pytest.raises(UnknownTransaction, match="token"):
        producer.recall(receipt._replace(token=b"mine"))
    with pytest.raises(InvalidMessage, match="not a receipt"):
        producer.recall("1")  # type: ignore[arg-type]
    later_shop.later(OVER)
    assert come(later_shop) == ["1"]


def test_a_message_that_was_sent_without_delay_can_not_be_recalled(later_shop: Shop) -> None:
    producer = later_shop.broker.producer("plain")
    with pytest.raises(DecidedOtherwise):
        producer.recall(producer.send(NEWS, b"1"))


@pytest.mark.rule("R13")
def test_check_back_leaves_delayed_messages_alone(shop: Shop) -> None:
    shop.broker.create_topic(LATER, TopicType.DELAY)
    receipt = shop.producer().send(LATER, b"1", delay=timedelta(days=1))
    assert shop.check() == 0
    assert shop.check() == 0
    assert (shop.state(receipt.txid), shop.pending()) == ("scheduled", [receipt.txid])
    assert shop.store.doubts.due(10) == []


@pytest.mark.req("RMQ-63", "RMQ-65")
def test_only_a_plain_send_to_a_topic_for_later_takes_a_delay(later_shop: Shop) -> None:
    producer = later_shop.producer()
    for topic in (NEWS, LATER):
        with pytest.raises(InvalidMessage, match="delay"):
            producer.send(topic, b"1", delay=SOON if topic == NEWS else None)
    with pytest.raises(InvalidMessage, match="delayed messages only"):
        producer.send_many(LATER, [b"1"])
    later_shop.later(OVER)
    assert (come(later_shop), later_shop.bodies(NEWS)) == ([], [])


def test_a_half_still_loses_its_delay(later_shop: Shop) -> None:
    producer = later_shop.mq_producer()
    producer.send_message_in_transaction(Message(ORDERS, b"1", delay=SOON), executor=says(COMMIT))
    assert later_shop.bodies() == ["1"]


def test_the_first_delayed_send_creates_a_topic_for_later_where_sends_may(home_url: str) -> None:
    open_store(home_url).close()
    with txsaga.connect(home_url, auto_create=True, roles=False, answering=False, env={}) as broker:
        broker.producer("plain").send("new", b"1", delay=SOON)
        assert broker.kernel.store.registry.topic("new").type is TopicType.DELAY


def test_the_roles_of_a_process_deliver_in_time(home_url: str) -> None:
    open_store(home_url).close()
    with txsaga.connect(home_url, env={}) as broker:
        broker.create_topic(LATER, TopicType.DELAY, queues=1)
        producer = broker.producer("plain")
        producer.send(LATER, b"1", delay=timedelta(seconds=0.5))
        sent = time.monotonic()
        (message,) = broker.stream("reader", [LATER]).messages(wait=3)
        took = time.monotonic() - sent - 3  # it reads on until nothing came for so long
    assert message.text() == "1"
    assert took < 2


def test_a_round_of_the_scheduler_is_announced_and_wakes_the_dispatcher() -> None:
    seen: list[Fact] = []
    clock = FakeClock()

    def watch(fact: Fact) -> None:
        seen.append(fact)

    broker = broker_on(MemoryStore(clock), watch)
    with broker:
        broker.create_topic(LATER, TopicType.DELAY)
        broker.producer("plain").send(LATER, b"1", delay=SOON)
        clock.advance(OVER)
        woken: list[bool] = []
        broker.kernel.when_decided(lambda: woken.append(True))
        seen.clear()
        assert [Scheduler(broker.kernel).run_once() for _ in range(2)] == [1, 0]
        assert [fact.name for fact in seen] == ["Scheduling", "Scheduled"] * 2
        assert woken == [True]
        assert Dispatcher(broker.kernel).run_once() == 1
