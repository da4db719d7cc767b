"""Copies of one message under a loop that is left: none stands for work that failed, and one of them comes again."""

from __future__ import annotations

import time

import pytest

from tests.clusters.test_stream_loops import left_at, of
from tests.clusters.test_streaming import chunks, texts
from tests.clusters.town import ORDERS, Town
from txsaga.clusters.copies import Timers
from txsaga.clusters.reader import ClusterStream
from txsaga.core.retry import patiently

pytestmark = [pytest.mark.postgres, pytest.mark.req("WM-39")]

TENTATIVE = 0.3


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patiently, "__defaults__", (0.0,))


@pytest.fixture
def chunk(town: Town) -> None:
    """Send two messages to all three, in one chunk on each; the first broker is their primary."""
    with town.cluster("multisend-guaranteed", needed=2).producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        tx.send(ORDERS, b"two")
    town.tick()


def opened(town: Town, tentative: float = TENTATIVE) -> ClusterStream:
    return town.plain().stream("readers", [ORDERS], timers=Timers(tentative=tentative))


def unread(town: Town) -> list[str]:
    """Read what the group did not commit."""
    with opened(town, 0.0) as again:
        return texts(again)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("last", ["one", "two"])
def test_a_message_whose_work_failed_comes_again_and_no_copy_of_it(town: Town, last: str) -> None:
    with opened(town) as stream:
        left_at(stream, last, wait=1.0)
        assert texts(stream, wait=1.0) == ["one", "two"]
    assert unread(town) == []


@pytest.mark.usefixtures("chunk")
def test_another_copy_of_what_failed_is_read_when_the_primary_dies(town: Town) -> None:
    with opened(town) as stream:
        left_at(stream, "one")
        town.down("b1")
        assert texts(stream, wait=1.0) == ["one", "two"]
        town.up("b1")
        assert texts(stream, wait=1.0) == []
    assert unread(town) == []


@pytest.mark.usefixtures("chunk")
def test_a_copy_that_stood_for_its_primary_and_failed_comes_again(town: Town) -> None:
    town.down("b1")
    with opened(town) as stream:
        assert left_at(stream, "one", wait=1.0) == ["one"]
        assert texts(stream, wait=1.0) == ["one", "two"]
        town.up("b1")
        assert texts(stream, wait=1.0) == []
    assert unread(town) == []


@pytest.mark.usefixtures("chunk")
def test_a_copy_that_stood_for_its_primary_and_failed_is_read_from_the_primary_that_is_back(town: Town) -> None:
    town.down("b1")
    with opened(town) as stream:
        left_at(stream, "one", wait=1.0)
        town.up("b1")
        assert texts(stream, wait=1.0) == ["one", "two"]
    assert unread(town) == []


@pytest.mark.usefixtures("chunk")
def test_a_copy_that_waits_goes_on_waiting_in_the_next_loop_and_nothing_before_it_comes_again(town: Town) -> None:
    town.down("b1")
    found = []
    with opened(town) as stream:
        for _ in range(3):
            found.append(texts(stream))
            time.sleep(TENTATIVE)
    assert found == [[], ["one"], ["two"]]


@pytest.mark.usefixtures("chunk")
def test_what_waits_is_polled_with_its_chunk_and_not_handed_out_besides(town: Town) -> None:
    town.down("b1")
    with opened(town) as stream:
        assert texts(stream) == []
        stream.reconnect()
        assert of(chunks(stream)) == ["one", "one", "two", "two"]
        assert texts(stream, wait=2 * TENTATIVE) == []


def test_of_two_copies_that_are_due_the_one_that_was_not_handed_out_is_polled_and_not_handed_out_besides(
    town: Town,
) -> None:
    producer = town.cluster("multisend-guaranteed", needed=2, override=True).producer("shop")
    for body, other in ((b"one", "b2"), (b"two", "b3")):
        producer.send(ORDERS, body, nodes=["b1", other])
    town.tick()
    town.down("b1")
    with opened(town) as stream:
        assert texts(stream) == []
        time.sleep(TENTATIVE)
        left_at(stream, "one")
        stream.reconnect()
        assert of(chunks(stream)) == ["one", "two"]
        assert texts(stream, wait=2 * TENTATIVE) == []
