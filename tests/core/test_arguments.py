"""What a user passes by mistake is refused at once, in one line that says what to give; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.oracle import MemoryStore
from tests.scene.fake_store import FakeStore, broker_on
from tests.scene.shop import NEWS, ORDERS, Shop, says
from txsaga import COMMIT, Message
from txsaga.checkback.profile import CheckProfile
from txsaga.consume.stream import Stream
from txsaga.core.layout import Batch
from txsaga.errors import ConfigError, InvalidMessage, UnknownTransaction
from txsaga.inspect.overview import Reading
from txsaga.messages.producer import Producer
from txsaga.testing import FakeClock

pytestmark = pytest.mark.core


@dataclass
class Scene:
    """What a program has at hand; nothing of it has a type, as in the programs that make mistakes."""

    shop: Any
    broker: Any
    plain: Any
    producer: Any
    stream: Any
    batch: Any

    def stored(self) -> object:
        """Tell what lies in the store."""
        overview = self.shop.store.overview
        return self.shop.listed(), [ageless(each) for each in overview.readings()], self.shop.store.registry.topics()


def ageless(reading: Reading) -> Reading:
    """Return a reading that looks the same a moment later."""
    return replace(reading, positions=tuple(replace(each, oldest=None) for each in reading.positions))


def scene_of(shop: Shop) -> Scene:
    """Send a message and poll it."""
    plain: Producer = shop.broker.producer("plain")
    plain.send(NEWS, b"x")
    shop.deliver()
    stream: Stream = shop.broker.stream("readers", [NEWS], member="anna")
    batch: Batch | None = stream.poll()
    return Scene(shop, shop.broker, plain, shop.mq_producer(), stream, batch)


async def later(*_: object) -> None:
    raise AssertionError("nobody awaits it")


@contextmanager
def given_up(scene: Scene) -> Iterator[Any]:
    """Open a block without a key; whatever happens in it, it stores nothing."""
    with scene.producer.transaction() as tx:
        yield tx
        raise AssertionError("this was not refused")


def in_block(call: Callable[[Any, Scene], object]) -> Callable[[Scene], object]:
    def run(scene: Scene) -> None:
        with given_up(scene) as tx:
            call(tx, scene)

    return run


def local(resource: object) -> Callable[[Scene], object]:
    return in_block(lambda tx, _: tx.local(resource).__enter__())


Call = Callable[[Scene], object]
SECONDS = r"give seconds, 0 or more"
ASYNC = "an async function, it would never run; give a function"
A_CHUNK = "the chunk is .*; give a batch that poll"
NO_BODY = r"a message has one body: give bytes, .* or text=.*, or json="
IN_MEMORY: dict[str, tuple[Call, str]] = {
    "send no body": (lambda s: s.plain.send(NEWS), NO_BODY),
    "submit no body": (lambda s: s.plain.submit(NEWS), NO_BODY),
    "prepare no body": (lambda s: s.producer.prepare(ORDERS), NO_BODY),
    "no body in a block": (in_block(lambda tx, _: tx.send(ORDERS)), NO_BODY),
    "no body in a transaction": (
        lambda s: s.producer.send_message_in_transaction(ORDERS, executor=lambda *_: None),
        NO_BODY,
    ),
    "a message and a body": (lambda s: s.plain.send(Message(NEWS, b"x"), b""), "a Message has its own body"),
    "a ttl of 5": (lambda s: s.broker.stream("g", [NEWS], ttl=5), "ttl is int; give a timedelta"),
    "no ttl": (lambda s: s.broker.stream("g", [NEWS], ttl=None), "ttl is None; give a timedelta"),
    "replay a text": (
        lambda s: s.broker.dead_letters.replay("18"),
        "ids is str; give a list of the numbers of letters",
    ),
    "purge a number": (lambda s: s.broker.dead_letters.purge(18), "ids is int; give a list"),
    "purge True": (lambda s: s.broker.dead_letters.purge([True]), "number of a letter is bool; give a whole number"),
    "replay texts": (lambda s: s.broker.dead_letters.replay(["18"]), "number of a letter is str; give a whole number"),
    "get a text": (lambda s: s.broker.dead_letters.get("x"), "number of a letter is str; give a whole number"),
    "letters of group 5": (lambda s: s.broker.dead_letters.list(5), "group is int; give its name"),
    "no letters at all": (lambda s: s.broker.dead_letters.list("q", 0), "limit is 0; give a number, 1 or more"),
    "letters to x": (lambda s: s.broker.dead_letters.list("q", "x"), "limit is 'x'; give a number, 1 or more"),
    "order that is yes": (lambda s: s.broker.create_group("q", ordered="yes"), "ordered is str; give True or False"),
    "order that is 1": (lambda s: s.broker.create_group("q", ordered=1), "ordered is int; give True or False"),
    "letters that are no": (lambda s: s.broker.create_group("q", dead_letters="no"), "dead_letters is str; give True"),
    "letters None": (lambda s: s.broker.create_group("q", dead_letters=None), "dead_letters is None; give True"),
    "a brief group": (lambda s: s.broker.create_group("q", expires=timedelta(seconds=1)), "expires is 0:00:01; give"),
    "topics that are 5": (lambda s: s.broker.stream("g", 5), "topics is int; give a list of names"),
    "topics that are bytes": (lambda s: s.broker.stream("g", b"news"), "topics is bytes; give a list of names"),
    "topics that never come": (lambda s: s.broker.stream("g", iter([])), "name at least one"),
    "a topic that is 5": (lambda s: s.broker.stream("g", [5]), "a topic name is int"),
    "a start that is true": (lambda s: s.broker.stream("g", [NEWS], start=True), "start True is none of"),
    "a tag of 5": (lambda s: s.broker.stream("g", [NEWS], tag=5), "tag is int; give the tag"),
    "a member of 5": (lambda s: s.broker.stream("g", [NEWS], member=5), "a member name is int"),
    "a member without a name": (lambda s: s.broker.stream("g", [NEWS], member=""), "a member name has 1 to 127"),
    "a member with a NUL": (lambda s: s.broker.stream("g", [NEWS], member="a\0b"), "member name .* may hold"),
    "batches that wait for x": (lambda s: s.stream.batches(wait="x"), f"wait is 'x'; {SECONDS}"),
    "batches that wait for less": (lambda s: s.stream.batches(wait=-1), f"wait is -1; {SECONDS}"),
    "messages that wait for x": (lambda s: s.stream.messages(wait="x"), f"wait is 'x'; {SECONDS}"),
    "messages that wait for nan": (lambda s: s.stream.messages(wait=float("nan")), f"wait is nan; {SECONDS}"),
    "a reading of nothing": (lambda s: next(s.stream.read(None)), A_CHUNK),
    "a commit of nothing": (lambda s: s.stream.commit(None), A_CHUNK),
    "a commit of messages": (lambda s: s.stream.commit(list(s.batch.messages())), A_CHUNK),
    "a commit up to x": (lambda s: s.stream.commit(s.batch, upto="x"), "upto is str; give an offset"),
    "a commit up to true": (lambda s: s.stream.commit(s.batch, upto=True), "upto is bool; give an offset"),
    "a seek to b": (lambda s: s.stream.seek(s.batch.qid, "b"), "offset is str; give a number"),
    "a seek in a list": (lambda s: s.stream.seek([], 0), "qid is list; give the number of a queue"),
    "a seek in a topic": (lambda s: s.stream.seek(NEWS, 0), "qid is str; give the number of a queue"),
    "a stream that is none": (in_block(lambda tx, s: tx.consume(None, s.batch)), "the stream is None; give one"),
    "a stream for a batch": (in_block(lambda tx, s: tx.consume(s.batch, s.stream)), "the stream is Batch; give one"),
    "a chunk that is none": (in_block(lambda tx, s: tx.consume(s.stream, None)), A_CHUNK),
    "a listener of 5": (in_block(lambda tx, _: tx.when_decided(5)), "listener is int; give a function"),
    "an async listener": (in_block(lambda tx, _: tx.when_decided(later)), f"listener is {ASYNC}"),
    "an async handler": (lambda s: s.broker.when_exhausted("shop", later), f"handler is {ASYNC}"),
    "async local work": (
        lambda s: s.producer.send_message_in_transaction(Message(ORDERS, b"x"), executor=later),
        f"executor is {ASYNC}",
    ),
    "an async hook": (lambda s: s.shop.mq_producer("g", end_hooks=[later]), f"an end hook is {ASYNC}"),
    "an option of foo": (
        lambda s: s.plain.send(NEWS, b"x", foo=1),
        "a message has no 'foo'; it takes text, json, key, tag",
    ),
    "a future's option": (lambda s: s.plain.submit(NEWS, b"x", foo=1), "a message has no 'foo'"),
    "a block's option": (in_block(lambda tx, _: tx.send(ORDERS, b"x", foo=1)), "a message has no 'foo'"),
    "a half's options": (lambda s: s.producer.prepare(ORDERS, b"x", foo=1, bar=2), "no 'bar', 'foo'"),
    "an option of a text": (lambda s: Message.text(NEWS, "x", foo=1), "a message has no 'foo'"),  # type: ignore[call-arg]
    "an option of a value": (lambda s: Message.json(NEWS, 1, body=b"x"), "a message has no 'body'"),  # type: ignore[call-arg]
    "immunity where there is none": (lambda s: s.producer.send(NEWS, b"x", immunity=9), "no 'immunity'"),
    "hooks that are 5": (lambda s: s.shop.mq_producer("g", end_hooks=5), "end_hooks is int; give a list of functions"),
    "no hooks at all": (lambda s: s.shop.mq_producer("g", end_hooks=None), "end_hooks is None; give a list"),
    "hooks of text": (lambda s: s.shop.mq_producer("g", end_hooks="x"), "end_hooks is str; give a list"),
    "a hook of 5": (lambda s: s.shop.mq_producer("g", end_hooks=[5]), "an end hook is int; give a"),
    "an end that is long": (lambda s: s.shop.mq_producer("g", end_timeout="x"), f"end_timeout is 'x'; {SECONDS}"),
    "a profile of 5": (lambda s: s.broker.roles(5), "profile is int; give a CheckProfile"),
    "a profile's pause": (lambda s: CheckProfile(interval=60), "interval is int; give a timedelta"),  # type: ignore[arg-type]
    "a profile's age": (lambda s: CheckProfile(min_age=timedelta(-1)), "min_age is .*; it must be between 0 and"),
    "a profile's count": (lambda s: CheckProfile(max_checks="9"), "max_checks is '9'; give a number"),  # type: ignore[arg-type]
    "a profile without checks": (lambda s: CheckProfile(max_checks=0), "max_checks is 0; give a number"),
    "a list for a resource": (local([]), "the resource is list; give the name of a registered"),
    "a number for a resource": (local(5), "the resource is int; give the name of a registered"),
}


@pytest.mark.parametrize(("call", "advice"), IN_MEMORY.values(), ids=IN_MEMORY)
def test_a_mistake_is_told_in_one_line(moody_shop: Shop, call: Call, advice: str) -> None:
    scene = scene_of(moody_shop)
    before = scene.stored()
    with pytest.raises((ConfigError, InvalidMessage), match=advice) as refusal:
        call(scene)
    assert "\n" not in str(refusal.value)
    assert scene.stored() == before


AT_HOME: dict[str, tuple[Call, str]] = {
    "an engine of 5": (lambda s: s.broker.register("abc", 5), "the engine of 'abc' is int; give a SQLAlchemy Engine"),
    "a name with a NUL": (lambda s: s.broker.register("a\0b", create_engine("sqlite://")), "in lower case"),
    "a connection that is none": (lambda s: s.producer.join(None), "the connection is None; give a SQLAlchemy"),
    "an engine for a connection": (lambda s: s.producer.join(s.shop.store.engine), "the connection is .*Engine; give"),
    "a list for a resource": (local([]), "the resource is list; give the name of a registered"),
}


@pytest.mark.parametrize(("call", "advice"), AT_HOME.values(), ids=AT_HOME)
def test_a_mistake_with_the_home_database_is_told_in_one_line(shop: Shop, call: Call, advice: str) -> None:
    test_a_mistake_is_told_in_one_line(shop, call, advice)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"url": 5}, "the URL is int; write postgresql://"),
        ({"resources": 5}, "resources is int; give engines by name"),
        ({"resources": {"books": "sqlite://"}}, "the engine of 'books' is str; give a SQLAlchemy Engine"),
        ({"observers": 5}, "observers is int; give a list of functions"),
        ({"observers": [5]}, "an observer is int; give a function"),
        ({"observers": [later]}, f"an observer is {ASYNC}"),
        ({"env": 5}, "env is int; give a mapping"),
        ({"roles": "no"}, "roles is str; give True or False"),
        ({"auto_create": "no"}, "auto_create is str; give True or False"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_broker_is_not_opened_by_mistake(home_url: str, wrong: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigError, match=advice) as refusal:
        txsaga.connect(**{"url": home_url, "roles": False, "env": {}, **wrong}).close()
    assert "\n" not in str(refusal.value)


# What is no mistake


def test_what_comes_one_by_one_may_be_a_list(moody_shop: Shop) -> None:
    heard: list[object] = []
    stream = moody_shop.broker.stream("readers", (name for name in [NEWS]))
    producer = moody_shop.mq_producer(end_hooks=(hook for hook in [heard.append]))
    moody_shop.broker.producer("press").send(NEWS, b"x")
    producer.send_message_in_transaction(Message(ORDERS, b"a chair"), executor=says(COMMIT))
    moody_shop.deliver()
    assert stream.poll() is not None
    assert len(heard) == 1


def test_whoever_waits_for_an_answer_may_be_late_or_very_patient(moody_shop: Shop) -> None:
    for timeout in (10**30, 1e300, 0, -1):
        pending = moody_shop.broker.producer("press").submit(NEWS, b"x")
        pending.result()
        assert pending.result(timeout).txid
    with pytest.raises(ConfigError, match="timeout is str; give seconds"):
        pending.result("x")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.rule("R8", "R11")
def test_a_stream_of_another_store_is_not_consumed(moody_shop: Shop) -> None:
    other = Shop(broker_on(FakeStore(MemoryStore(FakeClock()))), lambda _: None)
    foreign, ours = scene_of(other), scene_of(moody_shop)
    with foreign.producer.transaction(key="order-42") as theirs:
        with pytest.raises(UnknownTransaction), ours.producer.transaction(key="order-42") as tx:
            assert tx.txid == theirs.txid
            tx.consume(foreign.stream, foreign.batch)
    assert list(foreign.stream.poll().bodies) == [b"x"]
    other.broker.close()
