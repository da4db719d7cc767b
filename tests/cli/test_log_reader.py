"""Looking at topics leaves no trace without a group, and follows message by message with one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import pytest

from tests.contracts.samples import drain, new_group, new_queues, prepared, published, row, start
from tests.oracle import MemoryStore
from tests.scene.fake_store import bare_kernel
from txsaga.cli.messages import Tail, taken
from txsaga.consume.stream import Stream
from txsaga.core.announcer import Announcer
from txsaga.core.kernel import Kernel
from txsaga.core.topic import HALF_TOPIC
from txsaga.errors import ReservedName, UnknownTopic
from txsaga.testing import FakeClock


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = bare_kernel(MemoryStore(FakeClock()), Announcer(), "anna")
    yield kernel
    kernel.close()


def fill(kernel: Kernel, *chunks: str, topic: str = "orders", queues: int = 2) -> None:
    """Publish a chunk per text, one message per letter, by turns to the queues of a topic."""
    qids, group = new_queues(kernel.store, topic, queues), new_group(kernel.store)
    for at, letters in enumerate(chunks):
        published(kernel.store, group, row(qids[at % queues], *letters))
    drain(kernel.store)


def seen(kernel: Kernel, *topics: str, **options: object) -> str:
    """Read what is there."""
    messages = Tail(kernel, topics or ["orders"], **options).messages()  # type: ignore[arg-type]
    return "".join(message.text() for message in messages)


def test_everything_that_is_there_is_read_and_then_it_ends(kernel: Kernel) -> None:
    fill(kernel, "ab", "c", "d")
    assert sorted(seen(kernel)) == list("abcd")
    assert sorted(seen(kernel)) == list("abcd")
    assert list(kernel.store.overview.readings()) == []


def test_several_topics_are_read_each_once(kernel: Kernel) -> None:
    fill(kernel, "ab")
    fill(kernel, "cd", topic="other", queues=1)
    assert sorted(seen(kernel, "orders", "other", "orders")) == list("abcd")


@pytest.mark.parametrize(("begin", "wanted"), [("earliest", "abcde"), (1, "bcde"), (3, "de"), ("latest", ""), (99, "")])
def test_reading_begins_where_it_is_told(kernel: Kernel, begin: str | int, wanted: str) -> None:
    fill(kernel, "ab", "cde", queues=1)
    assert seen(kernel, start=begin) == wanted


@pytest.mark.req("RMQ-03")
def test_what_is_undecided_or_not_ticked_is_not_there(kernel: Kernel) -> None:
    fill(kernel, "a", queues=1)
    (qid,), group = kernel.store.registry.topic("orders").qids, new_group(kernel.store)
    prepared(kernel.store, group, row(qid, "b"))
    published(kernel.store, group, row(qid, "c"))
    assert seen(kernel) == "a"


def test_what_comes_while_it_reads_is_for_those_who_follow(kernel: Kernel) -> None:
    fill(kernel, "ab", queues=1)
    (qid,), group = kernel.store.registry.topic("orders").qids, new_group(kernel.store)
    messages = Tail(kernel, ["orders"]).messages()
    first = next(messages)
    published(kernel.store, group, row(qid, "c"))
    drain(kernel.store)
    assert first.text() + "".join(message.text() for message in messages) == "ab"


def test_the_end_is_where_it_was_when_reading_began(kernel: Kernel) -> None:
    fill(kernel, "ab", queues=1)
    (qid,), group = kernel.store.registry.topic("orders").qids, new_group(kernel.store)
    tail = Tail(kernel, ["orders"], start="latest")
    published(kernel.store, group, row(qid, "c"))
    drain(kernel.store)
    assert list(tail.messages()) == []


def test_following_goes_on_with_what_comes(kernel: Kernel) -> None:
    fill(kernel, "a", queues=2)
    following = Tail(kernel, ["orders"], start="latest").messages(follow=True)
    waiting = start(lambda: next(following).text())
    published(kernel.store, new_group(kernel.store), row(kernel.store.registry.topic("orders").qids[1], "b"))
    drain(kernel.store)
    assert waiting.result(30) == "b"
    following.close()


@pytest.mark.req("RMQ-97", "RMQ-17")
def test_system_names_and_unknown_ones_are_refused(kernel: Kernel) -> None:
    with pytest.raises(ReservedName):
        Tail(kernel, [HALF_TOPIC])
    with pytest.raises(UnknownTopic):
        Tail(kernel, ["nowhere"])


def member(kernel: Kernel) -> Stream:
    """Join a group of one."""
    return Stream(kernel, "group", ["orders"], member="anna")


def take(kernel: Kernel, count: int | None = None, tag: str | None = None) -> str:
    """Read as a member of a group."""
    with closing(member(kernel)) as stream:
        return "".join(message.text() for message in taken(stream, wait=0.0, count=count, tag=tag))


def test_a_group_goes_on_in_the_middle_of_a_chunk(kernel: Kernel) -> None:
    fill(kernel, "abcde", "fg", queues=1)
    assert [take(kernel, 2), take(kernel, 1), take(kernel, 3), take(kernel)] == ["ab", "c", "def", "g"]
    assert take(kernel) == ""


def test_a_message_counts_as_read_when_the_next_one_is_asked_for(kernel: Kernel) -> None:
    fill(kernel, "abc", queues=1)
    with closing(member(kernel)) as stream, closing(taken(stream, wait=0.0)) as messages:
        assert "".join(message.text() for message in islice(messages, 2)) == "ab"
    assert take(kernel) == "bc"


def test_messages_with_another_tag_are_passed_over(kernel: Kernel) -> None:
    fill(kernel, "abc", queues=1)
    assert take(kernel, tag="red") == ""
    assert take(kernel) == ""
