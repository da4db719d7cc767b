"""Every way to send leads through one door: the same is refused everywhere, with a line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Unpack

import pytest

import txsaga
from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from txsaga import COMMIT, Message
from txsaga.core.arguments import kind_of
from txsaga.core.message import MAX_BODY, MAX_KEY, MAX_TAG, MessageOptions
from txsaga.errors import ConfigError, InvalidMessage, TopicTypeMismatch, TxSagaError
from txsaga.messages.producer import Producer

Many = Callable[..., object]


def plainly(shop: Shop, producer: Producer, **columns: object) -> object:
    return producer.send_many(NEWS, **columns)  # type: ignore[arg-type]  # wrong on purpose


def in_a_block(shop: Shop, producer: Producer, **columns: object) -> None:
    with producer.transaction() as tx:
        tx.send_many(ORDERS, **columns)  # type: ignore[arg-type]  # wrong on purpose


def in_a_keyed_block(shop: Shop, producer: Producer, **columns: object) -> None:
    with producer.transaction(key="order-42") as tx:
        tx.send_many(ORDERS, **columns)  # type: ignore[arg-type]  # wrong on purpose


def joined(shop: Shop, producer: Producer, **columns: object) -> object:
    with shop.store.engine.begin() as connection:
        return producer.join(connection).send_many(NEWS, **columns)  # type: ignore[arg-type]  # wrong on purpose


MANY: list[Many] = [plainly, in_a_block, in_a_keyed_block, joined]
BAD_COLUMNS: dict[str, tuple[dict[str, object], str]] = {
    "bodies that are one": ({"bodies": 5}, "the bodies are int"),
    "bodies that come one by one": ({"bodies": (body for body in [b"x"])}, "the bodies are generator.*list"),
    "a body of text": ({"bodies": [b"x", "text"]}, "a body is str, not bytes"),
    "an oversize body": ({"bodies": [bytes(MAX_BODY + 1)]}, "a body has 4,194,305 bytes"),
    "fewer keys than bodies": ({"bodies": [b"x", b"y"], "keys": ["a"]}, "2 bodies came with 1 keys"),
    "keys that are one text": ({"bodies": [b"x", b"y"], "keys": "ab"}, "the keys are str"),
    "a key that is no text": ({"bodies": [b"x"], "keys": [42]}, "a key is int, not str"),
    "an oversize key": ({"bodies": [b"x"], "keys": ["k" * 10_000]}, f"a key has 10,000 bytes; at most {MAX_KEY:,}"),
    "an oversize key of long letters": ({"bodies": [b"x"], "keys": ["€" * 400]}, "a key has 1,200 bytes"),
    "a key that is no UTF-8": ({"bodies": [b"x"], "keys": ["\ud800"]}, "a key can't be stored as UTF-8"),
    "an oversize tag": ({"bodies": [b"x"], "tags": ["t" * (MAX_TAG + 1)]}, "a tag has 256 bytes"),
    "a tag that is no text": ({"bodies": [b"x"], "tags": [None]}, "a tag is None, not str"),
    "a tag that is no UTF-8": ({"bodies": [b"x"], "tags": ["\ud800"]}, "a tag can't be stored as UTF-8"),
}


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(("columns", "says_why"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_bad_columns_are_refused_like_bad_messages(shop: Shop, columns: dict[str, object], says_why: str) -> None:
    producer = shop.producer()
    for many in MANY:
        with pytest.raises(InvalidMessage, match=says_why):
            many(shop, producer, **columns)
    assert [view for view in shop.listed() if view.key is None] == []
    assert shop.read(ORDERS, NEWS) == []


@pytest.mark.req("RMQ-33")
def test_columns_at_the_limits_are_taken(shop: Shop) -> None:
    columns: dict[str, object] = {"bodies": [b"x", b""], "keys": ["k" * MAX_KEY, "€" * 341], "tags": ["", "t" * 255]}
    for many in MANY:
        many(shop, shop.producer(), **columns)
    assert len(shop.read(ORDERS, NEWS)) == 8


@pytest.mark.req("RMQ-63")
def test_an_ordered_topic_wants_an_ordering_key_whatever_the_way(shop: Shop) -> None:
    shop.broker.create_topic("ordered", "fifo")
    producer = shop.mq_producer()

    def in_a_block(**options: Unpack[MessageOptions]) -> None:
        with producer.transaction() as tx:
            tx.send("ordered", b"1", **options)

    def late(**options: Any) -> None:
        with producer.transaction() as tx:
            tx.later("ordered", **options)
            raise InterruptedError

    ways: list[Many] = [
        lambda **options: producer.send("ordered", b"1", **options),
        lambda **options: producer.submit("ordered", b"1", **options).result(10),
        lambda **options: producer.prepare("ordered", b"1", **options).result(10),
        lambda **options: producer.prepare_now("ordered", b"1", **options),
        lambda **options: producer.send_message_in_transaction(
            Message("ordered", b"1", **options), executor=says(COMMIT)
        ),
        in_a_block,
    ]
    for way in ways:
        with pytest.raises(InvalidMessage, match=r"'ordered' is ordered; give .* an ordering_key"):
            way(key="42")
        way(ordering_key="42")
    with pytest.raises(InvalidMessage, match="ordering_key"):
        late()
    with pytest.raises(InterruptedError):
        late(ordering_key="42")
    assert len(shop.read("ordered")) == 4  # two are halves that nobody decided


@pytest.mark.req("RMQ-63")
def test_columns_have_no_ordering_keys_so_an_ordered_topic_takes_none(shop: Shop) -> None:
    shop.broker.create_topic("ordered", "fifo")
    producer = shop.producer()
    with pytest.raises(InvalidMessage, match="'ordered' is ordered"):
        producer.send_many("ordered", [b"1"], keys=["42"])
    with pytest.raises(InvalidMessage, match="'ordered' is ordered"), producer.transaction() as tx:
        tx.send_many("ordered", [b"1"], keys=["42"])
    assert shop.read("ordered") == []


def test_an_empty_ordering_key_is_one(shop: Shop) -> None:
    shop.broker.create_topic("ordered", "fifo", queues=8)
    for n in range(20):
        shop.producer().send("ordered", b"", key=str(n), ordering_key="")
    assert len({message.queue for message in shop.read("ordered")}) == 1


def test_a_topic_for_later_delivers_nothing_at_once(shop: Shop) -> None:
    shop.broker.create_topic("later", "delay")
    producer = shop.broker.producer("plain")
    with pytest.raises(InvalidMessage, match="delayed messages only"):
        producer.send_many("later", [b"1"])
    producer.send("later", b"1", delay=timedelta(hours=1))
    assert shop.read("later") == []


@pytest.mark.parametrize("kind", ["plain", "half", "block", "joined"])
def test_few_messages_without_keys_go_to_the_queues_by_turns(shop: Shop, kind: str) -> None:
    topic = shop.broker.create_topic("turns", "normal" if kind in ("plain", "joined") else "transaction", queues=4).name
    producer = shop.producer()
    for _ in range(4):
        if kind == "plain":
            producer.send_many(topic, [b"1", b"2"])
        elif kind == "joined":
            with shop.store.engine.begin() as connection:
                producer.join(connection).send_many(topic, [b"1", b"2"])
        elif kind == "block":
            with producer.transaction() as tx:
                tx.send_many(topic, [b"1", b"2"])
        else:
            producer.commit(producer.prepare_now(topic, b"1"))
    queues = [message.queue for message in shop.read(topic)]
    assert {queues.count(queue) for queue in range(4)} == {1 if kind == "half" else 2}


BAD_MESSAGES: dict[str, tuple[dict[str, object], str]] = {
    "headers in a list": ({"headers": [("a", "b")]}, "the headers are list; give a mapping"),
    "no headers but a list": ({"headers": []}, "the headers are list; give a mapping"),
    "a delay in seconds": ({"delay": 5}, "delay is 5; give a timedelta"),
    "a time as text": ({"deliver_at": "2030-01-01"}, "deliver_at is '2030-01-01'; give a datetime"),
    "a mark that is no mark": ({"persistent": "no"}, "persistent is 'no'; give True or False"),
}


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(("options", "says_why"), BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_an_option_of_the_wrong_kind_is_told_in_our_words(
    moody_shop: Shop, options: dict[str, Any], says_why: str
) -> None:
    producer = moody_shop.mq_producer()
    ways: list[Callable[[], object]] = [
        lambda: producer.send(NEWS, b"x", **options),
        lambda: producer.prepare(ORDERS, b"x", **options),
        lambda: producer.send_message_in_transaction(order(**options), executor=says(COMMIT)),
    ]
    for way in ways:
        with pytest.raises(InvalidMessage, match=says_why):
            way()
    assert list(moody_shop.listed()) == []


def test_a_message_is_complete_and_takes_nothing_beside_it(moody_shop: Shop) -> None:
    producer = moody_shop.producer()
    for extra in ({"key": "42"}, {"body": b"another"}):
        with pytest.raises(InvalidMessage, match="a Message has its own body"):
            producer.send(Message(NEWS, b"x"), **extra)
    assert list(moody_shop.listed()) == []


KEYS: dict[str, tuple[object, str]] = {
    "a number": (5, "the key is int, not str"),
    "nothing": ("", "the key is empty"),
    "three megabytes": ("k" * 3_000_000, "the key has 3,000,000 bytes; at most 1,024"),
    "a NUL": ("order\x0042", "the key contains a NUL"),
    "no UTF-8": ("\ud800", "the key can't be stored as UTF-8"),
}


@pytest.mark.parametrize(("key", "says_why"), KEYS.values(), ids=KEYS)
def test_a_transaction_has_a_key_that_can_be_stored(shop: Shop, key: str, says_why: str) -> None:
    with pytest.raises(InvalidMessage, match=says_why):
        shop.producer().transaction(key=key)
    assert list(shop.listed()) == []


@pytest.mark.parametrize("field", ["key", "tag", "ordering_key", "headers"])
def test_a_late_message_has_no_nul_in_its_texts(shop: Shop, field: str) -> None:
    value: object = {"a": "\0"} if field == "headers" else "\0"
    with pytest.raises(InvalidMessage, match="NUL"), shop.producer().transaction() as tx:
        tx.later(ORDERS, **{field: value})  # type: ignore[arg-type]  # one of the four
    assert list(shop.listed()) == []


async def later(*_: object) -> txsaga.Decision:
    raise AssertionError("nobody awaits it")


class Later:
    """A listener whose check is async."""

    execute_local_transaction, check_local_transaction = staticmethod(print), staticmethod(later)


TOPICS: dict[str, tuple[dict[str, object], str]] = {
    "retention in seconds": ({"retention": 3600}, r"retention is 3600; .*timedelta"),
    "retention below nothing": (
        {"retention": timedelta(seconds=-1)},
        r"retention is .*; it must be between 0 and 36,500",
    ),
    "retention without end": ({"retention": timedelta.max}, r"retention is .*; it must be between 0 and 36,500 days"),
    "bytes below nothing": ({"retention_bytes": -1}, "retention_bytes is -1"),
    "bytes as text": ({"retention_bytes": "1M"}, "retention_bytes is '1M'"),
    "queues as text": ({"queues": "8"}, "1 to 1024 queues, not '8'"),
    "true queues": ({"queues": True}, "1 to 1024 queues, not True"),
    "a type that is a number": ({"type": 7}, "topic type 7 is none of normal"),
}
PRODUCERS: dict[str, tuple[dict[str, object], str]] = {
    "a checker that is text": ({"checker": "x"}, "checker is str; give a function"),
    "a listener that is a function": (
        {"listener": says(COMMIT)},
        "listener.execute_local_transaction is None; give a TransactionListener",
    ),
    "a checker that is async": ({"checker": later}, "checker is an async function, it would never run"),
    "a listener that is async": ({"listener": Later()}, "listener.check_local_transaction is an async function"),
    "a hook that is text": ({"end_hooks": ["x"]}, "an end hook is str"),
    "a time-out as text": ({"end_timeout": "3"}, "end_timeout is '3'"),
    "a time-out without end": ({"end_timeout": float("inf")}, "end_timeout is inf"),
    "a time-out below nothing": ({"end_timeout": -1}, "end_timeout is -1"),
}


@pytest.mark.parametrize(("options", "says_why"), TOPICS.values(), ids=TOPICS)
def test_a_topic_is_not_created_with_settings_of_the_wrong_kind(
    moody_shop: Shop, options: dict[str, object], says_why: str
) -> None:
    with pytest.raises(ConfigError, match=says_why):
        moody_shop.broker.create_topic("new", **options)  # type: ignore[arg-type]  # wrong on purpose
    assert [topic.name for topic in moody_shop.store.registry.topics()] == [NEWS, ORDERS]


@pytest.mark.parametrize(("options", "says_why"), PRODUCERS.values(), ids=PRODUCERS)
def test_a_group_is_not_registered_with_settings_of_the_wrong_kind(
    moody_shop: Shop, options: dict[str, object], says_why: str
) -> None:
    if "checker" in options:
        with pytest.raises(ConfigError, match=says_why):
            moody_shop.broker.producer("new", **options)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match=says_why):
        moody_shop.mq_producer("new", **options)  # type: ignore[arg-type]  # wrong on purpose
    assert moody_shop.store.registry.find_group("new") is None


def test_local_work_is_a_function_and_a_switch_is_true_or_false(moody_shop: Shop) -> None:
    with pytest.raises(ConfigError, match="executor is str; give a function"):
        moody_shop.mq_producer().send_message_in_transaction(order(), executor="x")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match="give True or False"):
        moody_shop.broker.reject_transactions("off")  # type: ignore[arg-type]  # wrong on purpose
    assert list(moody_shop.listed()) == []
    assert not moody_shop.store.registry.rejects_transactions


@pytest.mark.parametrize("name", [5, None, b"shop"])
def test_a_name_is_text(moody_shop: Shop, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: moody_shop.broker.producer(name),
        lambda: moody_shop.broker.create_topic(name),
        lambda: moody_shop.broker.producer("plain").send_many(name, [b"x"]),
    ]
    for call in calls:
        with pytest.raises(InvalidMessage, match=f"name is {kind_of(name)}, not str"):
            call()


def test_a_retention_below_a_second_is_a_second(shop: Shop) -> None:
    topic = shop.broker.create_topic("short", retention=timedelta(milliseconds=1), retention_bytes=10**9)
    assert (topic.retention_seconds, topic.retention_bytes) == (1, 10**9)


@pytest.mark.parametrize("wrong", [(b"token", txsaga.Decision.COMMIT), (None, COMMIT)])
def test_an_end_names_a_receipt_and_a_decision(shop: Shop, wrong: tuple[object, object]) -> None:
    producer = shop.producer()
    receipt, decision = wrong
    stored = producer.prepare_now(ORDERS, b"a chair")
    with pytest.raises(TxSagaError, match=r"give (one that|Decision\.COMMIT or Decision\.ROLLBACK)"):
        producer.decide(receipt or stored, decision).result(10)  # type: ignore[arg-type]
    assert shop.state(stored.txid) == "prepared"


def test_a_type_is_refused_before_what_the_message_lacks(shop: Shop) -> None:
    with pytest.raises(TopicTypeMismatch):
        shop.broker.producer("plain").send_many(ORDERS, [b"x"])
