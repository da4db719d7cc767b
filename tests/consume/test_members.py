"""Members of a group share the queues of the topics that they read, and give them back when they go."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.contracts.samples import PATIENCE, start
from tests.oracle import MemoryStore
from tests.scene.fake_store import FakeStore, broker_on
from tests.scene.patience import eventually
from tests.scene.shop import QUEUES
from txsaga.broker import Broker
from txsaga.consume.stream import Stream
from txsaga.errors import LeaseLost, StoreUnavailable
from txsaga.testing import FakeClock

SHORTEST = timedelta(seconds=1)


@pytest.fixture
def store() -> FakeStore:
    """Give a store that several brokers share."""
    return FakeStore(MemoryStore(FakeClock()))


@pytest.fixture
def broker(store: FakeStore) -> Iterator[Broker]:
    """Give one of them."""
    opened = broker_on(store)
    yield opened
    opened.close()


def fill(broker: Broker, topic: str, queues: int = QUEUES) -> tuple[int, ...]:
    """Create a topic with a message in each of its queues."""
    made = broker.create_topic(topic, queues=queues)
    for _ in made.qids:
        broker.producer("press").send(topic, topic.encode())
    while broker.roles()[0].run_once():
        pass
    return made.qids


def read(stream: Stream) -> list[str]:
    """Read all that is there."""
    return [message.text() for message in stream.messages(wait=0)]


def shared(*streams: Stream) -> list[int]:
    """Let members poll until all of them stand still; return how many queues each of them has."""
    seen: list[list[int]] = []
    calm = 0

    def settled() -> bool:
        nonlocal calm
        for stream in streams:
            stream.poll()
        seen.append([len(stream.claims) for stream in streams])
        calm = calm + 1 if seen[-1] == seen[max(len(seen) - 2, 0)] else 0
        return calm > 150  # about a second and a half of polling every 5 ms, longer than a lease

    eventually(settled, "the members share the queues")
    return seen[-1]


@pytest.mark.rule("R11")
def test_members_that_read_different_topics_leave_nothing_unread(broker: Broker) -> None:
    for topic in ("orders", "refunds"):
        fill(broker, topic)
    orders = broker.stream("billing", ["orders"], member="anna")
    refunds = broker.stream("billing", ["refunds"], member="berta")
    for stream in (orders, refunds):
        stream.poll()
        for qid, claim in stream.claims.items():
            stream.seek(qid, claim.offset)
    assert read(orders) == ["orders"] * QUEUES
    assert read(refunds) == ["refunds"] * QUEUES


def test_a_topic_is_shared_by_those_members_only_that_read_it(broker: Broker) -> None:
    fill(broker, "orders")
    fill(broker, "refunds")
    both = broker.stream("billing", ["orders", "refunds"], member="anna", ttl=SHORTEST)
    one = broker.stream("billing", ["refunds"], member="berta", ttl=SHORTEST)
    assert shared(both, one) == [QUEUES + QUEUES // 2, QUEUES // 2]


def test_topics_of_one_queue_do_not_all_fall_to_the_same_member(broker: Broker) -> None:
    topics = [f"topic-{number}" for number in range(4)]
    for topic in topics:
        fill(broker, topic, queues=1)
    anna, berta = (broker.stream("billing", topics, member=name, ttl=SHORTEST) for name in ("anna", "berta"))
    assert shared(anna, berta) == [2, 2]


# Going


def test_a_broker_that_closes_gives_back_what_its_streams_hold(store: FakeStore, broker: Broker) -> None:
    fill(broker, "orders")
    leaving = broker_on(store)
    for _ in leaving.stream("billing", ["orders"], member="anna").messages():
        break
    leaving.close()
    assert read(broker.stream("billing", ["orders"], member="berta")) == ["orders"] * QUEUES


def test_a_closed_stream_ends_its_readers(broker: Broker) -> None:
    fill(broker, "orders")
    stream = broker.stream("billing", ["orders"], member="anna")
    batches = stream.batches()
    late = next(batches)
    waiting = start(lambda: len(list(stream.batches())))
    stream.close()
    stream.close()
    assert waiting.result(PATIENCE) <= QUEUES
    assert list(batches) == []
    with pytest.raises(LeaseLost, match="closed"):
        stream.poll()
    with pytest.raises(LeaseLost):
        stream.commit(late)


def test_a_broker_closes_though_its_store_is_away(
    store: FakeStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("the server is away")

    fill(broker, "orders")
    leaving = broker_on(store)
    stream = leaving.stream("billing", ["orders"], member="anna")
    stream.poll()
    monkeypatch.setattr(store.queues, "leave", away)
    leaving.close()
    assert stream.claims == {}


def test_a_queue_that_could_not_be_given_up_is_given_up_later(
    store: FakeStore, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, failures = store.queues.release, iter([StoreUnavailable("the server is away")])

    def once_away(group: str, member: str, qid: int) -> None:
        for failure in failures:
            raise failure
        release(group, member, qid)

    fill(broker, "orders", queues=2)
    anna, berta = (broker.stream("billing", ["orders"], member=name, ttl=SHORTEST) for name in ("anna", "berta"))
    anna.poll()
    monkeypatch.setattr(store.queues, "release", once_away)
    assert shared(anna, berta) == [1, 1]
    assert next(failures, None) is None
