"""A stream whose offsets are bound to transactions: what a rollback gives back is read again, never skipped."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from tests.scene.elsewhere import Elsewhere
from tests.scene.patience import eventually
from tests.scene.shop import NEWS, ORDERS, Shop, says
from txsaga import COMMIT, ROLLBACK, LocalState
from txsaga.consume.stream import Stream
from txsaga.core.layout import Batch
from txsaga.core.records import TxRecord
from txsaga.errors import DecidedOtherwise, LeaseLost, OutcomeUnknown, OutOfOrder, StoreUnavailable
from txsaga.messages.ledger_store import Ledger

SHORTEST, LEASE = timedelta(seconds=1), timedelta(seconds=15)


class Refused(Exception):
    """What the work in a block raises."""


def filled(shop: Shop, *bodies: bytes, ttl: timedelta = LEASE) -> Stream:
    """Send plain messages, each a chunk of its own, and open a stream on them."""
    producer = shop.broker.producer("news")
    for body in bodies:
        producer.send(NEWS, body)
    shop.deliver()
    return shop.broker.stream("readers", [NEWS], member="anna", ttl=ttl)


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


def left_undecided(shop: Shop, stream: Stream, answer: LocalState) -> None:
    """Consume two chunks in a block that is left behind its end: only its checker knows what became of it."""
    with suppress(Refused), shop.producer(checker=says(answer)).transaction() as tx:
        tx.consume(stream, next_of(stream))
        tx.consume(stream, next_of(stream))
        tx.prepare()
        raise Refused


def first_again(stream: Stream) -> Batch | None:
    batch = stream.poll()
    return batch if batch is not None and batch.offset == 0 else None


@pytest.mark.rule("R11")
def test_what_others_rolled_back_comes_again_by_itself(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2", b"3", ttl=SHORTEST)
    left_undecided(moody_shop, stream, ROLLBACK)
    assert list(next_of(stream).bodies) == [b"3"]
    assert moody_shop.check() == 1
    first = eventually(lambda: first_again(stream), "the first chunk comes again")
    assert first is not None
    stream.commit(first)
    assert texts(stream) == ["2", "3"]


@pytest.mark.rule("R11", "R14")
@pytest.mark.parametrize("written", [True, False])
def test_an_answer_that_was_lost_does_not_end_the_consuming(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    stream = filled(moody_shop, b"1", b"2")
    with moody_shop.producer().transaction(key="order-42") as tx:
        lost = lose_answer(moody_shop, monkeypatch, written=written)
        tx.consume(stream, next_of(stream))
        assert lost == [True]
        tx.send(ORDERS, b"a chair")
    assert moody_shop.bodies() == ["a chair"]
    assert texts(stream) == ["2"]


def lose_answer(shop: Shop, monkeypatch: pytest.MonkeyPatch, *, written: bool) -> list[bool]:
    """Lose the answer to the next write, which is done or not; return a list that fills when it is lost."""
    lost: list[bool] = []
    ledgers = shop.store.ledgers
    open_well = ledgers.open

    @contextmanager
    def open_once_badly() -> Iterator[Ledger]:
        with open_well() as ledger:
            yield ledger
            if not lost and not written:
                lost.append(True)
                raise OutcomeUnknown("the connection broke at COMMIT")
        if not lost:
            lost.append(True)
            raise OutcomeUnknown("the connection broke at COMMIT")

    monkeypatch.setattr(ledgers, "open", open_once_badly)
    return lost


@pytest.mark.rule("R11")
def test_a_chunk_that_could_not_be_consumed_comes_next(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> TxRecord:
        raise StoreUnavailable("the server is away")

    stream = filled(moody_shop, b"1", b"2")
    with pytest.raises(StoreUnavailable), moody_shop.producer().transaction() as tx:
        monkeypatch.setattr(tx, "join_life", away)
        tx.consume(stream, next_of(stream))
    assert texts(stream) == ["1", "2"]


# Closing


def other(shop: Shop) -> Stream:
    """Open a member that comes after the one of `filled`."""
    return shop.broker.stream("readers", [NEWS], member="berta", ttl=SHORTEST)


@pytest.mark.rule("R11")
@pytest.mark.parametrize(("fails", "rest"), [(False, ["2"]), (True, ["1", "2"])])
def test_a_stream_that_closes_leaves_its_open_block_alone(moody_shop: Shop, fails: bool, rest: list[str]) -> None:
    stream = filled(moody_shop, b"1", b"2")
    berta = other(moody_shop)
    with suppress(Refused), moody_shop.producer().transaction() as tx:
        tx.consume(stream, next_of(stream))
        tx.send(ORDERS, b"a chair")
        stream.close()
        assert berta.poll() is None
        if fails:
            raise Refused
    assert moody_shop.bodies() == ([] if fails else ["a chair"])
    assert eventually(lambda: texts(berta), "the queue changes hands when the block is decided") == rest


@pytest.mark.rule("R11")
def test_a_closed_stream_whose_block_never_ends_is_succeeded_when_its_lease_runs_out(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    tx = moody_shop.producer().transaction().__enter__()
    tx.consume(stream, next_of(stream))
    stream.close()
    berta = other(moody_shop)
    assert berta.poll() is None
    moody_shop.later(LEASE.total_seconds())
    assert eventually(lambda: texts(berta), "berta settles the block") == ["1", "2"]
    with pytest.raises(DecidedOtherwise, match="ROLLBACK"):
        tx.__exit__(None, None, None)


@pytest.mark.rule("R11")
def test_a_stream_whose_blocks_are_decided_gives_everything_back(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2", b"3", b"4", ttl=timedelta(hours=1))  # outlives the check
    with moody_shop.producer(checker=says(COMMIT)).transaction() as tx:
        tx.consume(stream, next_of(stream))
    left_undecided(moody_shop, stream, COMMIT)
    assert moody_shop.check() == 1
    stream.close()
    assert texts(other(moody_shop)) == ["4"]


@pytest.mark.rule("R11")
def test_a_closing_stream_gives_back_the_queues_that_are_not_bound(moody_shop: Shop) -> None:
    moody_shop.broker.create_topic("letters", "normal", queues=1)
    moody_shop.broker.producer("post").send("letters", b"a letter")
    filled(moody_shop, b"1").close()
    stream = moody_shop.broker.stream("readers", [NEWS, "letters"], member="anna")
    with moody_shop.producer().transaction() as tx:
        batch = next_of(stream)
        while batch.topic != NEWS:
            batch = next_of(stream)
        tx.consume(stream, batch)
        stream.close()
        letters = moody_shop.broker.stream("readers", ["letters"], member="berta")
        assert texts(letters) == ["a letter"]


@pytest.mark.rule("R4", "R11")
def test_offsets_of_a_superseded_attempt_are_not_consumed(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1")
    producer = moody_shop.producer()
    superseded = producer.transaction(key="order-42")
    Elsewhere(superseded).__enter__()
    superseded.consume(stream, next_of(stream))
    with producer.transaction(key="order-42") as tx:
        tx.send("orders", b"without having read anything")
    assert moody_shop.bodies() == ["without having read anything"]
    again = moody_shop.broker.stream("readers", [NEWS], member="anna")
    assert texts(again) == ["1"]


@pytest.mark.rule("R4", "R11")
def test_an_attempt_that_took_over_in_the_same_stream_is_rolled_back_in_full(moody_shop: Shop) -> None:
    stream = filled(moody_shop, b"1", b"2")
    producer = moody_shop.producer()
    Elsewhere(producer.transaction(key="order-42")).__enter__().consume(stream, next_of(stream))
    with suppress(Refused), producer.transaction(key="order-42") as tx:
        with pytest.raises(LeaseLost):  # the first chunk is free again, and the stream learns it here
            tx.consume(stream, next_of(stream))
        tx.consume(stream, next_of(stream))
        raise Refused
    assert texts(stream) == ["1", "2"]
