"""A stream over a cluster: a cursor on each broker, what comes first is read first, brokers may come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.test_subscribing import put
from tests.clusters.town import NAMES, ORDERS, Town
from txsaga.clusters.copies import Timers
from txsaga.clusters.reader import ClusterStream
from txsaga.core.layout import Batch
from txsaga.errors import LeaseLost, StoreUnavailable, TransactionError

pytestmark = pytest.mark.postgres


def texts(stream: ClusterStream, wait: float = 0.0) -> list[str]:
    """Read what there is."""
    return [message.text() for message in stream.messages(wait=wait)]


def chunks(stream: ClusterStream) -> list[Batch]:
    """Poll until nothing is there."""
    found: list[Batch] = []
    while (batch := stream.poll()) is not None:
        found.append(batch)
    return found


@pytest.fixture
def stream(town: Town) -> Iterator[ClusterStream]:
    """Give a stream over all three."""
    yield town.plain().stream("readers", ["plain"])


@pytest.mark.req("WM-08", "WM-09")
def test_every_broker_is_read_by_turns_and_each_in_its_order(town: Town, stream: ClusterStream) -> None:
    for at in range(2):
        for name in NAMES:
            put(town, name, f"{name} {at}")
    found = texts(stream)
    assert len(found) == len(set(found)) == 6
    for name in NAMES:
        assert [text for text in found if text.startswith(name)] == [f"{name} 0", f"{name} 1"]
    assert {text.split()[0] for text in found[:3]} == set(NAMES)


def test_a_position_is_kept_by_each_broker(town: Town, stream: ClusterStream) -> None:
    put(town, "b1", "one")
    put(town, "b2", "two")
    messages = stream.messages(wait=0)
    assert {next(messages).text(), next(messages).text()} == {"one", "two"}
    stream.close()  # what was handed out and not asked behind was not committed
    again = town.plain().stream("readers", ["plain"])
    assert sorted(texts(again)) == ["one", "two"]
    again.close()
    put(town, "b2", "three")
    last = town.plain().stream("readers", ["plain"])
    assert texts(last) == ["three"]


def test_a_chunk_is_committed_where_it_came_from(town: Town, stream: ClusterStream) -> None:
    put(town, "b1", "one")
    put(town, "b2", "two")
    first, second = chunks(stream)
    stream.commit(second)
    stream.close()
    with town.plain().stream("readers", ["plain"]) as again:
        assert [batch.store for batch in chunks(again)] == [first.store]


@pytest.mark.req("WM-37", "WM-38")
def test_what_lies_on_a_dead_broker_waits_there_and_the_others_go_on(town: Town, stream: ClusterStream) -> None:
    put(town, "b1", "one", "two")
    town.down("b1")
    put(town, "b2", "three")
    assert [
        message.text() for batch in chunks_but_for(stream, "b1 became unavailable") for message in batch.messages()
    ] == ["three"]
    stream.reconnect()
    assert [*stream.active] == ["b2", "b3"]
    assert stream.poll() is None
    town.up("b1")
    found = chunks_but_for(stream, "b1 is back")
    stream.reconnect()
    assert [*stream.active] == [*NAMES]
    found += chunks(stream)
    assert [message.text() for batch in found for message in batch.messages()] == ["one", "two"]


def chunks_but_for(stream: ClusterStream, told: str) -> list[Batch]:
    """Poll until a connection error says what changed."""
    found: list[Batch] = []
    with pytest.raises(StoreUnavailable, match=told):
        while True:
            batch = stream.poll()
            assert batch is not None
            found.append(batch)
    return found


@pytest.mark.req("WM-37")
def test_whoever_iterates_is_connected_anew_by_itself(town: Town, stream: ClusterStream) -> None:
    messages = stream.messages(wait=10)
    put(town, "b1", "one")
    for text in ("one", "two"):
        assert next(messages).text() == text
        town.down("b1")
        put(town, "b2", "two")


@pytest.mark.req("WM-39")
def test_one_of_several_copies_is_read_and_the_cursors_stand_behind_all(town: Town) -> None:
    producer = town.cluster("multisend-guaranteed", needed=2).producer("shop")
    for text in (b"one", b"two"):
        producer.send(ORDERS, text)
    town.tick()
    with town.plain().stream("readers", [ORDERS]) as stream:
        assert texts(stream, wait=0.2) == ["one", "two"]
    with town.plain().stream("readers", [ORDERS], timers=Timers(tentative=0.0)) as stream:
        assert texts(stream) == []


@pytest.mark.req("WM-39")
def test_another_copy_is_read_when_the_primary_shows_nothing(town: Town) -> None:
    town.cluster("multisend-guaranteed", needed=2).producer("shop").send(ORDERS, b"one")
    town.tick()
    town.down("b1")
    put(town, "b2", "plain one")
    with town.plain().stream("readers", [ORDERS], timers=Timers(tentative=0.3)) as stream:
        assert texts(stream, wait=3.0) == ["one"]
        town.up("b1")
        assert texts(stream, wait=0.5) == []


@pytest.mark.req("WM-10")
def test_chunks_of_two_brokers_are_consumed_by_one_decision(town: Town) -> None:
    cluster = town.cluster()
    put(town, "b1", "one")
    put(town, "b2", "two")
    with cluster.stream("readers", ["plain"]) as stream:
        with cluster.producer("shop").transaction() as tx:
            for batch in chunks(stream):
                tx.consume(stream, batch)
            assert tx.participants == ("b1", "b2")
    with cluster.stream("readers", ["plain"]) as again:
        assert chunks(again) == []


def test_a_chunk_of_somebody_else_is_refused_and_a_closed_stream_reads_nothing(
    town: Town, stream: ClusterStream
) -> None:
    town.coordinator.create_topic("elsewhere", queues=1)
    town.coordinator.producer("sellers").send("elsewhere", b"one")
    town.coordinator.roles()[0].run_once()
    batch = town.coordinator.stream("others", ["elsewhere"]).poll()
    assert batch is not None
    with pytest.raises(TransactionError, match="not part of this cluster"):
        stream.commit(batch)
    stream.close()
    with pytest.raises(LeaseLost):
        stream.poll()
    assert texts(stream) == []
