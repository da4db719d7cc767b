"""A reader of a cluster: a session for each broker, what comes first is served first, brokers may come and go."""

from __future__ import annotations

import pytest

from tests.clusters.town import NAMES, Town
from txsaga.clusters.consumer import ClusterConsumer
from txsaga.errors import StoreUnavailable

pytestmark = pytest.mark.postgres


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
    return town.plain().consumer("readers", ["plain"], background=False)


@pytest.mark.req("WM-08")
def test_a_session_reads_from_every_broker(town: Town) -> None:
    for name in NAMES:
        put(town, name, f"on {name}")
    with town.plain().consumer("readers", ["plain"]) as consumer:
        assert sorted(seen(consumer, 3)) == [(name, f"on {name}") for name in NAMES]
        assert [*consumer.sessions] == [*consumer.active] == [*NAMES]


@pytest.mark.req("WM-09")
def test_what_arrives_first_is_served_first(town: Town, consumer: ClusterConsumer) -> None:
    put(town, "b1", "later")
    put(town, "b2", "first", "second")
    consumer.sessions["b2"].run_once()
    consumer.sessions["b1"].run_once()
    assert seen(consumer, 3) == [("b2", "first"), ("b2", "second"), ("b1", "later")]


@pytest.mark.req("WM-37")
def test_a_broker_that_goes_or_comes_back_is_an_error_and_a_new_active_set(
    town: Town, consumer: ClusterConsumer
) -> None:
    assert consumer.receive() == []
    town.down("b1")
    with pytest.raises(StoreUnavailable, match="b1 went away"):
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
def test_what_nobody_worked_on_is_given_back(town: Town) -> None:
    put(town, "b1", "one")
    consumer = town.plain().consumer("readers", ["plain"], background=False)
    consumer.sessions["b1"].run_once()
    consumer.close()
    with pytest.raises(Exception, match="closed"):
        consumer.sessions["b1"]._consumer.receive()  # type: ignore[union-attr]
