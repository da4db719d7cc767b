"""A consumer of a cluster: every broker is read, what comes first is served first, brokers may come and go."""

from __future__ import annotations

import time
from statistics import median
from threading import Timer

import pytest

from tests.clusters.town import NAMES, Town
from txsaga.clusters.copies import Timers
from txsaga.clusters.reader import ClusterConsumer
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.errors import ConfigError, OutcomeUnknown, StoreUnavailable

pytestmark = pytest.mark.postgres

CLAIMED = 32
"""Messages that a consumer claims at a time."""


def put(town: Town, name: str, *texts: str) -> None:
    """Send messages straight to one broker."""
    for text in texts:
        town.direct[name].producer("sellers").send("plain", text.encode())
    town.tick(name)


def seen(consumer: ClusterConsumer, count: int, wait: float = 5.0) -> list[tuple[str, str]]:
    """Receive and acknowledge so many messages."""
    found: list[tuple[str, str]] = []
    while len(found) < count and (some := consumer.receive(count - len(found), wait=wait)):
        for each in some:
            each.message.ack()
            found.append((each.broker, each.message.text()))
    return found


@pytest.fixture
def consumer(town: Town) -> ClusterConsumer:
    return town.plain().consumer("readers", ["plain"])


@pytest.mark.req("WM-08")
def test_every_broker_is_read(town: Town) -> None:
    for name in NAMES:
        put(town, name, f"on {name}")
    with town.plain().consumer("readers", ["plain"]) as consumer:
        assert sorted(seen(consumer, 3)) == [(name, f"on {name}") for name in NAMES]
        assert [*consumer.active] == [*NAMES]


@pytest.mark.req("WM-09")
def test_what_arrives_first_is_served_first(town: Town, consumer: ClusterConsumer) -> None:
    town.direct["b2"].producer("sellers").send_many("plain", [b"first", b"second"])
    town.tick("b2")
    assert seen(consumer, 1) == [("b2", "first")]
    put(town, "b1", "later")
    put(town, "b3", "later")
    assert seen(consumer, 3) == [("b2", "second"), ("b3", "later"), ("b1", "later")]


@pytest.mark.req("WM-37")
def test_a_broker_that_goes_or_comes_back_is_an_error_and_a_new_active_set(
    town: Town, consumer: ClusterConsumer
) -> None:
    assert consumer.receive() == []
    town.down("b1")
    with pytest.raises(StoreUnavailable, match="b1 became unavailable"):
        consumer.receive()
    consumer.reconnect()
    assert [*consumer.active] == ["b2", "b3"]
    assert consumer.receive() == []
    town.up("b1")
    with pytest.raises(StoreUnavailable, match="b1 is back"):
        consumer.receive()
    consumer.reconnect()
    assert [*consumer.active] == [*NAMES]


@pytest.mark.req("WM-38")
def test_what_lies_on_a_dead_broker_waits_there_and_the_others_go_on(town: Town, consumer: ClusterConsumer) -> None:
    put(town, "b1", "one", "two")
    town.down("b1")
    put(town, "b2", "three")
    with pytest.raises(StoreUnavailable):
        consumer.receive()
    consumer.reconnect()
    assert seen(consumer, 1) == [("b2", "three")]
    assert consumer.receive() == []
    town.up("b1")
    with pytest.raises(StoreUnavailable):
        consumer.receive()
    consumer.reconnect()
    assert seen(consumer, 2) == [("b1", "one"), ("b1", "two")]


@pytest.mark.req("WM-37")
def test_whoever_iterates_is_connected_anew_by_itself(town: Town) -> None:
    cluster = town.plain()
    with cluster.consumer("readers", ["plain"]) as consumer:
        messages = consumer.messages(wait=10)
        put(town, "b1", "one")
        for text in ("one", "two"):
            with next(messages) as message:
                assert message.text() == text
            town.down("b1")
            put(town, "b2", "two")


@pytest.mark.req("WM-09")
def test_brokers_with_many_messages_take_turns(town: Town, consumer: ClusterConsumer) -> None:
    for name in NAMES:
        town.direct[name].producer("sellers").send_many("plain", [b"one"] * 2 * CLAIMED)
        town.tick(name)
    found = [name for name, _ in seen(consumer, 6 * CLAIMED)]
    assert found == [name for _ in range(2) for name in NAMES for _ in range(CLAIMED)]


def test_whoever_waits_gets_a_message_as_soon_as_it_is_there(town: Town, consumer: ClusterConsumer) -> None:
    assert consumer.receive() == []
    assert median(latency(town, consumer) for _ in range(5)) < 0.06


def latency(town: Town, consumer: ClusterConsumer) -> float:
    """Return how long after its tick a message is handed out to a caller who waits."""
    there: list[float] = []

    def send() -> None:
        put(town, "b2", "one")
        there.append(time.monotonic())

    sender = Timer(0.1, send)
    sender.start()
    assert seen(consumer, 1) == [("b2", "one")]
    taken = time.monotonic()
    sender.join()
    return taken - there[0]


def test_whoever_waits_asks_at_a_measured_pace(
    town: Town, consumer: ClusterConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, asked = Consumer.receive, list[str]()

    def counted(self: Consumer, *, patience: float) -> list[Delivery]:
        asked.append(self.member)
        return receive(self, patience=patience)

    monkeypatch.setattr(Consumer, "receive", counted)
    assert consumer.receive(wait=0.5) == []
    assert len(NAMES) < len(asked) <= 15 * len(NAMES)


def test_whoever_waits_is_let_go_when_the_consumer_is_closed(consumer: ClusterConsumer) -> None:
    closer = Timer(0.2, consumer.close)
    closer.start()
    began = time.monotonic()
    assert consumer.receive(wait=20) == []
    assert time.monotonic() - began < 10
    closer.join()


@pytest.mark.req("WM-37")
def test_a_lost_answer_is_a_broker_that_went_away(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    put(town, "b1", "one")
    consumer = town.opened({"brokers": [*NAMES], "policy": "sticky"}, retry=60).consumer("readers", ["plain"])
    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "receive", lost)
        with pytest.raises(StoreUnavailable, match="b1 became unavailable"):
            consumer.receive()
    consumer.reconnect()
    assert seen(consumer, 1) == [("b1", "one")]


def lost(_: Consumer, **__: float) -> list[Delivery]:
    raise OutcomeUnknown("it is unknown whether this was written")


@pytest.mark.parametrize("count", [0, -1, "2"])
def test_a_number_of_messages_is_one_or_more(consumer: ClusterConsumer, count: int) -> None:
    with pytest.raises(ConfigError, match=r"count is .*; give a number, 1 or more"):
        consumer.receive(count)


@pytest.mark.req("WM-09")
def test_what_nobody_worked_on_is_given_back_as_if_it_had_not_been_taken(town: Town) -> None:
    town.direct["b1"].producer("sellers").send_many("plain", [b"worked on", b"one"])
    town.tick("b1")
    put(town, "b2", "two")
    with town.plain().consumer("readers", ["plain"]) as consumer:
        assert seen(consumer, 1) == [("b1", "worked on")]
        town.down("b3")
        with pytest.raises(StoreUnavailable, match="b3 became unavailable"):
            consumer.receive(3)
    with town.plain(names=("b1", "b2")).consumer("readers", ["plain"]) as again:
        found = again.receive(2)
    assert sorted((each.broker, each.message.text(), each.message.attempts) for each in found) == [
        ("b1", "one", 1),
        ("b2", "two", 1),
    ]


@pytest.mark.req("WM-39")
def test_a_copy_that_was_held_back_is_given_back(town: Town) -> None:
    town.plain("multisend-best-effort").producer("shop").send("plain", b"one")
    town.tick()
    others = town.plain(names=("b2", "b3"))
    with others.consumer("readers", ["plain"], timers=Timers(tentative=60)) as consumer:
        assert consumer.receive() == []
    with others.consumer("readers", ["plain"], timers=Timers(tentative=0)) as again:
        assert [each.message.attempts for each in again.receive(2) or again.receive(2)] == [1]
