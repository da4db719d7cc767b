"""Producers: their pluggable roles, the kind of their group, what they refuse before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

import txsaga
from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState, Message
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.core.message import MAX_BODY, MAX_HEADERS, MAX_KEY, MAX_TAG
from txsaga.core.records import ProducerKind
from txsaga.errors import ConfigError, GroupInUse, GroupKindMismatch, InvalidMessage, UnknownProducerGroup
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer

pytestmark = pytest.mark.core


@dataclass
class Till:
    """Local work and its checker in one object, as users write them."""

    executed: LocalState | None = COMMIT
    checked: LocalState | None = COMMIT
    heard: list[str] = field(default_factory=list)

    def execute_local_transaction(self, message: Message, arg: object) -> LocalState | None:
        self.heard.append(f"execute {message.body.decode()}")
        return self.executed

    def check_local_transaction(self, question: object) -> LocalState | None:
        self.heard.append("check")
        return self.checked


@pytest.mark.req("RMQ-14")
def test_executor_and_checker_can_be_one_listener(shop: Shop) -> None:
    till = Till(executed=UNKNOWN, checked=COMMIT)
    producer = TransactionMQProducer(shop.broker, "shop", till)
    producer.send_message_in_transaction(order("a table"))
    assert till.heard == ["execute a table"]
    shop.check()
    assert till.heard == ["execute a table", "check"]
    assert shop.bodies() == ["a table"]


@pytest.mark.req("RMQ-14")
@pytest.mark.conf("RC-J10", "RC-C10")
def test_executor_and_checker_can_be_two(shop: Shop) -> None:
    heard: list[str] = []

    def local(message: Message, arg: object) -> LocalState:
        heard.append(f"local {arg}")
        return UNKNOWN

    def checker(question: object) -> LocalState:
        heard.append("check")
        return ROLLBACK

    shop.mq_producer(checker=checker).send_message_in_transaction(order(), 42, executor=local)
    shop.check()
    assert heard == ["local 42", "check"]
    assert shop.bodies() == []


@pytest.mark.req("RMQ-14")
def test_a_transactional_producer_sends_plain_messages_too(shop: Shop) -> None:
    till = Till()
    producer = TransactionMQProducer(shop.broker, "shop", till)
    receipt = producer.send(NEWS, b"fresh chairs")
    assert (till.heard, shop.state(receipt.txid)) == ([], "committed")
    assert shop.bodies(NEWS) == ["fresh chairs"]


@pytest.mark.req("RMQ-38")
def test_an_executor_wins_over_the_listener(shop: Shop) -> None:
    till = Till(executed=ROLLBACK)
    producer = TransactionMQProducer(shop.broker, "shop", till)
    result = producer.send_message_in_transaction(order(), executor=says(COMMIT))
    assert (result.local_state, till.heard) == (COMMIT, [])
    assert shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-38")
def test_a_checker_wins_over_the_listener(shop: Shop) -> None:
    till = Till(executed=UNKNOWN, checked=ROLLBACK)
    producer = TransactionMQProducer(shop.broker, "shop", till, checker=says(COMMIT))
    producer.send_message_in_transaction(order("a table"))
    shop.check()
    assert till.heard == ["execute a table"]
    assert shop.bodies() == ["a table"]


@pytest.mark.req("RMQ-76")
@pytest.mark.parametrize("first", ["transactional", "plain"])
def test_a_group_of_rocketmqs_producers_takes_no_plain_producer(shop: Shop, first: str) -> None:
    kinds: dict[str, Callable[[], Producer]] = {
        "transactional": lambda: TransactionMQProducer(shop.broker, "app", Till()),
        "plain": lambda: shop.broker.producer("app"),
    }
    other = "plain" if first == "transactional" else "transactional"
    kinds[first]()
    with pytest.raises(GroupKindMismatch, match=f"'app' is {first} in this store and can't also be {other}"):
        kinds[other]()
    assert kinds[first]().group == kinds[first]().group


@pytest.mark.req("RMQ-76")
def test_the_kind_of_a_group_is_known_to_every_process(shop: Shop, home_url: str) -> None:
    TransactionMQProducer(shop.broker, "app", Till())
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as other, pytest.raises(GroupKindMismatch):
        other.producer("app")


@pytest.mark.req("RMQ-76")
@pytest.mark.parametrize(("first", "other"), [("transactional", "plain"), ("plain", "transactional")])
def test_the_kind_of_a_group_can_be_changed_once_nothing_of_it_is_undecided(
    shop: Shop, first: ProducerKind, other: ProducerKind
) -> None:
    kinds: dict[ProducerKind, Callable[[], Producer]] = {
        "transactional": lambda: TransactionMQProducer(shop.broker, "app", Till()),
        "plain": lambda: shop.broker.producer("app"),
    }
    with kinds[first]().transaction(key="order-1") as tx:
        tx.send(order())
        with pytest.raises(GroupInUse, match=f"transaction {tx.txid}, .* `txsaga tx settle {tx.txid}`"):
            shop.broker.set_kind("app", other)
        with pytest.raises(GroupKindMismatch, match=f"`txsaga producer alter app --kind {other}`"):
            kinds[other]()
    assert shop.broker.set_kind("app", other).kind == other
    assert kinds[other]().group.kind == other
    with pytest.raises(GroupKindMismatch):
        kinds[first]()


@pytest.mark.req("RMQ-76")
def test_the_kind_of_a_group_stays_while_a_process_answers_for_it(shop: Shop) -> None:
    TransactionMQProducer(shop.broker, "app", Till())
    Heartbeat(shop.broker.kernel).run_once()
    with pytest.raises(GroupInUse, match=f"has member {shop.broker.kernel.member}, .*; stop it"):
        shop.broker.set_kind("app", "plain")
    with pytest.raises(UnknownProducerGroup):
        shop.broker.set_kind("nobody", "plain")
    with pytest.raises(ConfigError, match="give one of any, plain, transactional"):
        shop.broker.set_kind("app", "mine")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("transactional", [True, False])
def test_a_producer_with_a_checker_joins_any_group(shop: Shop, transactional: bool) -> None:
    shop.mq_producer("app") if transactional else shop.broker.producer("app")
    with shop.producer("app").transaction() as tx:
        tx.send(order())
    assert shop.bodies() == ["a chair"]


BAD: dict[str, tuple[Message, str]] = {
    "an empty topic": (Message("", b""), "the topic is empty"),
    "a topic that is no name": (Message(7, b""), "the topic is int"),  # type: ignore[arg-type]
    "a topic with a blank": (Message("two words", b""), "letters, digits"),
    "an oversize body": (Message(ORDERS, bytes(MAX_BODY + 1)), "the body has 4,194,305 bytes"),
    "a body of text": (Message(ORDERS, "text"), "the body is str, not bytes"),  # type: ignore[arg-type]
    "an oversize key": (order(key="k" * (MAX_KEY + 1)), "the key has 1,025 bytes"),
    "an oversize tag": (order(tag="t" * (MAX_TAG + 1)), "the tag has 256 bytes"),
    "a key that is no text": (order(key=42), "the key is int"),  # type: ignore[arg-type]
    "oversize headers": (order(headers={"a": "x" * MAX_HEADERS}), "the block of headers has 32,769 bytes"),
    "a header that is no text": (order(headers={"a": 1}), "header 'a' is not text"),  # type: ignore[dict-item]
    "a delay that is too long": (order(delay=timedelta(days=41)), "delay is 41 days"),
}


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(("message", "says_why"), BAD.values(), ids=BAD)
def test_a_bad_message_is_refused_before_anything_is_stored(moody_shop: Shop, message: Message, says_why: str) -> None:
    producer = moody_shop.mq_producer()
    ran: list[object] = []

    def in_a_block() -> None:
        with producer.transaction() as tx:
            tx.send(order())
            tx.send(message)

    attempts: list[Callable[[], object]] = [
        lambda: producer.send_message_in_transaction(message, executor=ran.append),  # type: ignore[arg-type]
        lambda: producer.prepare(message),
        lambda: producer.send(message),
        in_a_block,
    ]
    for attempt in attempts:
        with pytest.raises(InvalidMessage, match=says_why):
            attempt()
    assert (list(moody_shop.listed()), ran) == ([], [])


IMMUNITIES: dict[str, object] = {
    "a fraction": 7.5,
    "a whole float": 7.0,
    "text": "7",
    "true": True,
    "negative": -1,
    "a period": timedelta(seconds=7),
    "more than a row holds": 2**31,
}


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize("immunity", IMMUNITIES.values(), ids=IMMUNITIES)
def test_an_immunity_is_whole_seconds(moody_shop: Shop, immunity: int) -> None:
    producer = moody_shop.mq_producer()
    attempts: list[Callable[[], object]] = [
        lambda: producer.send_message_in_transaction(order(), executor=says(COMMIT), immunity=immunity),
        lambda: producer.prepare(order(), immunity=immunity),
        lambda: producer.transaction(immunity=immunity),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidMessage, match=r"immunity is .*(whole seconds|must be between 0 and)"):
            attempt()
    assert list(moody_shop.listed()) == []


@pytest.mark.parametrize("queues", [0, -1, 1025])
def test_the_number_of_queues_has_bounds(shop: Shop, queues: int) -> None:
    with pytest.raises(ConfigError, match="1 to 1024 queues"):
        shop.broker.create_topic("some", queues=queues)
