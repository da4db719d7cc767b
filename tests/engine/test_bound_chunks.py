"""A stream whose offsets are bound to transactions: what a rollback gives back is read again, never skipped."""

from contextlib import suppress

import pytest

from tests.engine.shop import NEWS, ORDERS, Shop, says
from txsaga import ROLLBACK
from txsaga.engine.stream import Stream
from txsaga.errors import LeaseLost, OutOfOrder
from txsaga.model.layout import Batch


class Refused(Exception):
    """What the work in a block raises."""


def filled(shop: Shop, *bodies: bytes) -> Stream:
    """Send plain messages, each a chunk of its own, and open a stream on them."""
    producer = shop.broker.producer("news")
    for body in bodies:
        producer.send(NEWS, body)
    shop.deliver()
    return shop.broker.stream("readers", [NEWS], member="anna")


def next_of(stream: Stream) -> Batch:
    batch = stream.poll()
    assert batch is not None
    return batch


def texts(stream: Stream) -> list[str]:
    """Read on to the end, committing what was read."""
    found = []
    while (batch := stream.poll()) is not None:
        found += [body.decode() for body in batch.bodies]
        stream.commit(batch)
    return found


@pytest.mark.rule("R11")
def test_after_a_rollback_every_chunk_that_was_bound_is_read_again(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2", b"3")
    with pytest.raises(Refused), moody_shop.producer().transaction() as tx:
        tx.consume(stream, next_of(stream))
        tx.consume(stream, next_of(stream))
        raise Refused
    assert texts(stream) == ["1", "2", "3"]


@pytest.mark.rule("R11")
def test_a_chunk_that_was_rolled_back_is_consumed_once_when_it_is_tried_again(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    tries = 0
    while (batch := stream.poll()) is not None:
        for _ in range(2 if not tries else 1):
            tries += 1
            with suppress(Refused), moody_shop.producer().transaction() as tx:
                tx.consume(stream, batch)
                tx.send_many(ORDERS, list(batch.bodies))
                if tries == 1:
                    raise Refused
    assert tries == 3
    assert sorted(moody_shop.bodies()) == ["1", "2"]


@pytest.mark.rule("R11")
def test_a_transaction_consumes_no_chunk_that_it_was_not_given(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    first, second = next_of(stream), next_of(stream)
    with pytest.raises(OutOfOrder, match="drop this work"), moody_shop.producer().transaction() as tx:
        tx.consume(stream, second)
    again = next_of(stream)
    assert again.offset == first.offset
    with moody_shop.producer().transaction() as tx:
        tx.consume(stream, again)
    assert texts(stream) == ["2"]


@pytest.mark.rule("R11")
def test_a_block_that_raises_before_it_consumes_loses_nothing(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    done: list[bytes] = []
    failures = 0
    while (batch := stream.poll()) is not None:
        try:
            with moody_shop.producer().transaction() as tx:
                if not failures:
                    raise Refused
                tx.consume(stream, batch)
        except (Refused, OutOfOrder):
            failures += 1
        else:
            done += batch.bodies
    assert (done, failures) == ([b"1", b"2"], 2)


@pytest.mark.rule("R11")
def test_a_chunk_is_not_consumed_a_second_time(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2", b"3")
    first = next_of(stream)
    with moody_shop.producer().transaction() as tx:
        tx.consume(stream, first)
        tx.consume(stream, next_of(stream))
    with pytest.raises(OutOfOrder), moody_shop.producer().transaction() as tx:
        tx.consume(stream, first)
    assert moody_shop.pending() == []
    assert texts(stream) == ["3"]


@pytest.mark.rule("R11")
def test_what_counts_as_read_is_passed_over_after_a_rollback(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"poison", b"2")
    poison = next_of(stream)
    with pytest.raises(Refused), moody_shop.producer().transaction() as tx:
        tx.consume(stream, poison)
        raise Refused
    stream.commit(poison)
    assert texts(stream) == ["2"]


@pytest.mark.rule("R11")
def test_a_stream_does_not_skip_what_somebody_else_rolled_back(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    with pytest.raises(Refused), moody_shop.producer(checker=says(ROLLBACK)).transaction() as tx:
        tx.consume(stream, next_of(stream))
        tx.prepare()
        raise Refused
    assert moody_shop.check() == 1
    ahead = next_of(stream)
    assert list(ahead.bodies) == [b"2"]
    with pytest.raises(LeaseLost):
        stream.commit(ahead)
    assert texts(stream) == ["1", "2"]


@pytest.mark.rule("R4", "R11")
def test_offsets_of_a_superseded_attempt_are_not_consumed(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1")
    producer = moody_shop.producer()
    superseded = producer.transaction(key="order-42")
    superseded.__enter__()
    superseded.consume(stream, next_of(stream))
    with producer.transaction(key="order-42") as tx:
        tx.send("orders", b"without having read anything")
    assert moody_shop.bodies() == ["without having read anything"]
    again = moody_shop.broker.stream("readers", [NEWS], member="anna")
    assert texts(again) == ["1"]
