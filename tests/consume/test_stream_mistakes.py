"""What a stream can't do is refused in one line that says what to do instead, and nothing is stored."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tests.scene.shop import NEWS, Shop
from txsaga.cli.messages import Tail
from txsaga.consume.stream import Stream
from txsaga.core.layout import Batch
from txsaga.errors import ConfigError, InvalidMessage, LeaseLost, OutOfOrder

NO_ZONE = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture
def chunk(moody_shop: Shop) -> None:
    """Send two messages in one chunk, and then one more."""
    producer = moody_shop.broker.producer("news")
    producer.send_many(NEWS, [b"1", b"2"], tags=["odd", "even"])
    producer.send(NEWS, b"3", tag="odd")
    moody_shop.deliver()


def reader(shop: Shop, **options: object) -> Stream:
    return shop.broker.stream("readers", [NEWS], member="anna", **options)  # type: ignore[arg-type]


def batches_of(stream: Stream) -> list[Batch]:
    return list(stream.batches(wait=0))


@pytest.mark.parametrize(
    ("topics", "options", "advice"),
    [
        ([NEWS], {"start": "begining"}, "is none of 'earliest', 'latest'"),
        ([NEWS], {"start": None}, "is none of 'earliest', 'latest'"),
        ([NEWS], {"start": NO_ZONE}, "no time zone"),
        ([], {}, "name at least one"),
        (NEWS, {}, r"write \['news'\]"),
        ([NEWS], {"ttl": timedelta(0)}, "from one second to one day"),
        ([NEWS], {"ttl": timedelta(seconds=-3)}, "from one second to one day"),
        ([NEWS], {"ttl": timedelta.max}, "from one second to one day"),
    ],
)
def test_a_stream_is_not_opened_by_mistake(
    moody_shop: Shop, topics: Sequence[str], options: dict[str, object], advice: str
) -> None:
    with pytest.raises(ConfigError, match=advice) as refusal:
        moody_shop.broker.stream("readers", topics, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
    assert list(moody_shop.store.overview.readings()) == []


def test_a_group_has_a_name(moody_shop: Shop) -> None:
    with pytest.raises(InvalidMessage, match="consumer group"):
        moody_shop.broker.stream("", [NEWS])


def test_whoever_looks_without_a_group_names_a_start_that_is_one(moody_shop: Shop) -> None:
    with pytest.raises(ConfigError, match="is none of 'earliest', 'latest'"):
        Tail(moody_shop.broker.kernel, [NEWS], start="begining")  # type: ignore[arg-type]


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("upto", [10**9, -1])
def test_a_commit_stays_inside_of_its_chunk(moody_shop: Shop, upto: int) -> None:
    stream = reader(moody_shop)
    (first, _) = batches_of(stream)
    with pytest.raises(ConfigError, match="give 0 to 2"):
        stream.commit(first, upto=upto)
    assert lag(moody_shop) == 3
    stream.commit(first, upto=1)
    assert lag(moody_shop) == 2


@pytest.mark.usefixtures("chunk")
def test_a_commit_does_not_take_back_another(moody_shop: Shop) -> None:
    stream = reader(moody_shop)
    first, second = batches_of(stream)
    stream.commit(second)
    stream.commit(second)
    for upto in (None, 0):
        with pytest.raises(OutOfOrder, match="is read up to 3"):
            stream.commit(first, upto=upto)
    assert lag(moody_shop) == 0


@pytest.mark.usefixtures("chunk")
def test_whoever_seeks_back_may_commit_there(moody_shop: Shop) -> None:
    stream = reader(moody_shop)
    first, second = batches_of(stream)
    stream.commit(second)
    stream.seek(first.qid, 0)
    (again, _) = batches_of(stream)
    stream.commit(again)
    assert lag(moody_shop) == 1


@pytest.mark.usefixtures("chunk")
def test_nobody_seeks_in_a_queue_of_somebody_else(moody_shop: Shop) -> None:
    stream = reader(moody_shop)
    (first, _) = batches_of(stream)
    stream.close()
    for qid in (first.qid, 10**6):
        with pytest.raises(LeaseLost, match="seek in one of"):
            stream.seek(qid, 0)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("take", [Stream.poll, Stream.batches])
def test_a_tag_that_would_be_ignored_is_refused(moody_shop: Shop, take: Callable[[Stream], object]) -> None:
    stream = reader(moody_shop, tag="odd")
    with pytest.raises(ConfigError, match="use messages"):
        take(stream)
    assert [message.text() for message in stream.messages(wait=0)] == ["1", "3"]


def lag(shop: Shop) -> int:
    """Tell how far the readers lag behind."""
    (reading,) = shop.store.overview.readings()
    return reading.lag


@pytest.mark.parametrize("tag", [None, "odd", "even"])
def test_a_chunk_whose_loop_was_left_within_it_comes_again(moody_shop: Shop, chunk: None, tag: str | None) -> None:
    stream = reader(moody_shop, tag=tag)
    read: list[bytes] = []
    with pytest.raises(ZeroDivisionError):
        for message in stream.messages(wait=0):
            read.append(message.body)
            raise ZeroDivisionError
    for message in stream.messages(wait=0):
        read.append(message.body)
        break
    again = [message.body for message in stream.messages(wait=0)]
    every = [body for body, its in ((b"1", "odd"), (b"2", "even"), (b"3", "odd")) if tag in (None, its)]
    assert (read, again) == ([every[0]] * 2, every)


def test_a_loop_that_was_left_goes_on_where_the_group_stands(moody_shop: Shop, chunk: None) -> None:
    stream = reader(moody_shop)
    batch = stream.poll()
    assert batch is not None
    stream.seek(batch.qid, 0)
    messages = stream.messages(wait=0)
    assert next(messages).body == b"1"
    stream.commit(batch, upto=1)
    messages.close()  # type: ignore[attr-defined]
    assert [message.body for message in stream.messages(wait=0)] == [b"2", b"3"]


def test_a_loop_that_reads_again_and_is_left_goes_on_there_and_not_where_the_group_stands(
    moody_shop: Shop, chunk: None
) -> None:
    stream = reader(moody_shop)
    batches = batches_of(stream)
    for batch in batches:
        stream.commit(batch)
    for qid in {batch.qid for batch in batches}:
        stream.seek(qid, 0)
    for message in stream.messages(wait=0):
        assert message.body == b"1"
        break
    assert [message.body for message in stream.messages(wait=0)] == [b"1", b"2", b"3"]


def test_a_chunk_that_was_polled_and_is_left_within_comes_again_and_nothing_is_committed(
    moody_shop: Shop, chunk: None
) -> None:
    stream = reader(moody_shop)
    batch = stream.poll()
    assert batch is not None
    messages = stream.read(batch)
    assert next(messages).body == b"1"
    messages.close()
    found = batches_of(stream)
    assert [message.body for each in found for message in stream.read(each)] == [b"1", b"2", b"3"]
    assert batches_of(stream) == []
    assert lag(moody_shop) == 3
