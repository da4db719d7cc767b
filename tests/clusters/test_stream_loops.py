"""A loop over a cluster's messages that is left within a chunk: what was not passed comes again, as from one store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.test_streaming import chunks, texts
from tests.clusters.test_subscribing import put
from tests.clusters.town import NAMES, Town
from txsaga.clusters.reader import ClusterStream
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.core.retry import patiently

pytestmark = pytest.mark.postgres


def put_chunk(town: Town, name: str, *texts: str) -> None:
    """Send messages straight to one broker, in one chunk."""
    town.direct[name].producer("sellers").send_many("plain", [text.encode() for text in texts])
    town.tick(name)


def left_at(stream: ClusterStream, last: str, wait: float = 0.0) -> list[str]:
    """Read until the work on a message fails; return what was handed out."""
    found: list[str] = []
    with pytest.raises(ZeroDivisionError):
        for message in stream.messages(wait=wait):
            found.append(message.text())
            if found[-1] == last:
                raise ZeroDivisionError
    return found


def of(batches: list[Batch]) -> list[str]:
    return sorted(message.text() for batch in batches for message in batch.messages())


@pytest.fixture
def stream(town: Town, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterStream]:
    """Give a stream over all three that does not wait long for one that is away."""
    monkeypatch.setattr(patiently, "__defaults__", (0.0,))
    with town.plain().stream("readers", ["plain"]) as stream:
        yield stream


@pytest.fixture
def by_two(town: Town) -> None:
    """Put a chunk of two on each broker."""
    for name in NAMES:
        put_chunk(town, name, f"{name} 0", f"{name} 1")


def unread(town: Town) -> list[str]:
    """Read what the group did not commit."""
    with town.plain().stream("readers", ["plain"]) as again:
        return texts(again)


@pytest.mark.parametrize("last", ["one", "two"])
def test_a_chunk_whose_loop_was_left_within_it_comes_again(town: Town, stream: ClusterStream, last: str) -> None:
    put_chunk(town, "b1", "one", "two")
    put(town, "b1", "three")
    left_at(stream, last)
    for message in stream.messages(wait=0):
        assert message.text() == "one"
        break
    assert texts(stream) == ["one", "two", "three"]
    stream.close()
    assert unread(town) == []


def test_whoever_polls_behind_a_loop_that_was_left_gets_its_chunk(town: Town, stream: ClusterStream) -> None:
    put_chunk(town, "b1", "one", "two")
    put(town, "b1", "three")
    left_at(stream, "one")
    batch = stream.poll()
    assert batch is not None
    assert of([batch]) == ["one", "two"]
    stream.commit(batch)
    assert texts(stream) == ["three"]


@pytest.mark.usefixtures("by_two")
def test_what_was_passed_of_other_brokers_does_not_come_again(town: Town, stream: ClusterStream) -> None:
    assert left_at(stream, "b2 0") == ["b1 0", "b2 0"]
    rest = texts(stream)
    assert sorted(rest) == ["b1 1", "b2 0", "b2 1", "b3 0", "b3 1"]
    assert rest.index("b2 0") < rest.index("b2 1")
    stream.close()
    assert unread(town) == []


@pytest.mark.usefixtures("by_two")
def test_whoever_polls_gets_every_chunk_that_a_loop_began(town: Town, stream: ClusterStream) -> None:
    left_at(stream, "b2 0")
    found = chunks(stream)
    assert of(found) == [f"{name} {at}" for name in NAMES for at in range(2)]
    assert texts(stream) == []
    for batch in found:
        stream.commit(batch)
    stream.close()
    assert unread(town) == []


def test_what_was_left_on_a_broker_that_dies_comes_again_when_it_is_back(town: Town, stream: ClusterStream) -> None:
    put_chunk(town, "b1", "one", "two")
    left_at(stream, "one")
    town.down("b1")
    put(town, "b2", "three")
    assert texts(stream, wait=0.3) == ["three"]
    town.up("b1")
    assert texts(stream, wait=1.0) == ["one", "two"]


def test_what_could_not_be_read_is_not_passed_over(
    town: Town, stream: ClusterStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_chunk(town, "b1", "one", "two")
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "messages", unreadable)
        with pytest.raises(ZeroDivisionError):
            texts(stream)
    assert texts(stream) == ["one", "two"]


def unreadable(_: Batch) -> Iterator[Delivered]:
    raise ZeroDivisionError


def test_a_chunk_that_was_passed_is_committed_when_its_broker_is_back(town: Town, stream: ClusterStream) -> None:
    put(town, "b1", "one")
    for _ in stream.messages(wait=0.3):
        town.down("b1")
    town.up("b1")
    assert texts(stream, wait=0.3) == []
    stream.close()
    assert unread(town) == []
