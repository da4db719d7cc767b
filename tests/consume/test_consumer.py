"""The loop of a work-style consumer: what becomes of a message, whatever its block does."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from datetime import timedelta
from threading import Thread
from weakref import ref

import pytest

from tests.scene.shop import NEWS, Shop
from tests.scene.worker import GROUP, bodies, letters, told, worker, wrote
from txsaga.consume.claim import Policy, Style
from txsaga.consume.consumer import Consumer
from txsaga.core.records import LogEntry
from txsaga.errors import (
    AlreadyDone,
    BrokerClosed,
    ClaimLost,
    ConfigError,
    GroupKindMismatch,
    TransactionError,
)

HALF_A_MINUTE, LONG = timedelta(seconds=30), 600.0


def test_leaving_the_block_acknowledges(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    for message in worker(moody_shop).messages(wait=0):
        with message:
            assert message.attempts == 1
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []


def test_an_exception_puts_the_message_back_and_the_loop_goes_on(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    wrote(moody_shop, "a", "b", "c")
    done = []
    for message in worker(moody_shop).messages(wait=0):
        with message:
            if message.text() == "b":
                raise ValueError("no chair is left")
            done.append(message.text())
    assert done == ["a", "c"]
    assert told(caplog, logging.WARNING, "no chair is left")
    assert bodies(moody_shop) == []
    moody_shop.later(1.0)
    (again,) = worker(moody_shop).receive()
    assert (again.text(), again.attempts) == ("b", 2)


@pytest.mark.req("IBM-61")
def test_the_rest_doubles_with_each_delivery_whoever_gets_it(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, first_retry=timedelta(seconds=1), longest_retry=timedelta(seconds=3))
    wrote(moody_shop, "a")
    for attempts, rest in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 3.0)):
        with worker(moody_shop, member=f"member-{attempts}") as consumer:
            (message,) = consumer.receive()
            assert message.attempts == attempts
            message.nack("broken")
        moody_shop.later(rest - 0.1)
        assert bodies(moody_shop) == []
        moody_shop.later(0.1)


@pytest.mark.req("IBM-61")
def test_the_rest_is_a_little_longer_or_shorter_each_time_so_that_not_all_come_at_once(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moody_shop.broker.kernel, "jitter", lambda: 0.5)
    moody_shop.broker.create_group(GROUP, first_retry=timedelta(seconds=10))
    wrote(moody_shop, "a", "b")
    consumer, producer = worker(moody_shop), moody_shop.producer("taking")
    put_back, bound = consumer.receive()
    put_back.nack("broken")
    with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
        tx.consume(bound)
        raise ZeroDivisionError
    moody_shop.later(4.0)
    assert bodies(moody_shop) == []
    moody_shop.later(1.5)
    assert sorted(bodies(moody_shop) + bodies(moody_shop)) == ["a", "b"]


def test_a_delay_of_ones_own_counts_more(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    message.nack(delay=timedelta(seconds=20))
    moody_shop.later(19.0)
    assert bodies(moody_shop) == []
    moody_shop.later(1.0)
    assert bodies(moody_shop) == ["a"]


def test_an_interrupt_gives_everything_back_uncounted_and_gets_out(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    with pytest.raises(KeyboardInterrupt):
        for message in worker(moody_shop).messages(wait=0):
            with message:
                if message.text() == "b":
                    raise KeyboardInterrupt
    again = worker(moody_shop).receive()
    assert sorted((message.text(), message.attempts) for message in again) == [("b", 1), ("c", 1)]


def test_leaving_the_loop_gives_the_rest_back(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    for message in worker(moody_shop).messages(wait=0):
        with message:
            break
    again = worker(moody_shop).receive()
    assert [(message.text(), message.attempts) for message in again] == [("b", 1), ("c", 1)]


def test_closing_ends_the_loop_and_gives_the_rest_back(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    consumer, done = worker(moody_shop), []
    for message in consumer:
        with message:
            done.append(message.text())
            consumer.close()
    assert done == ["a"]
    assert bodies(moody_shop) == ["b", "c"]
    with pytest.raises(BrokerClosed, match="this consumer is closed; open another"):
        consumer.receive()


def test_a_loop_that_waits_ends_when_its_consumer_is_closed(moody_shop: Shop) -> None:
    consumer, ended = worker(moody_shop), []
    looping = Thread(target=lambda: ended.append([message.text() for message in consumer]))
    looping.start()
    consumer.close()
    looping.join(10)
    assert ended == [[]]


def test_what_is_asked_for_is_the_most_that_is_given(moody_shop: Shop) -> None:
    wrote(moody_shop, *"abcdef")
    consumer = worker(moody_shop, batch=4)
    assert [len(consumer.receive(count)) for count in (1, None)] == [1, 4]
    consumer.close()
    for message in worker(moody_shop).receive():
        message.ack()
    for wrong in (0, -1, 61, 1.5, True, "5"):
        with pytest.raises(ConfigError, match="count"):
            worker(moody_shop).receive(wrong)  # type: ignore[arg-type]


def test_a_late_acknowledgement_is_refused(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    one, two = worker(moody_shop, invisible=HALF_A_MINUTE).receive()
    moody_shop.later(30.0)
    with pytest.raises(ClaimLost, match="come again"):
        one.ack()
    with pytest.raises(ClaimLost), two:
        pass
    assert sorted(bodies(moody_shop) + bodies(moody_shop)) == ["a", "b"]


def test_work_that_failed_too_late_is_no_error(moody_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop, invisible=HALF_A_MINUTE).receive()
    moody_shop.later(30.0)
    with message:
        raise ValueError("broken")
    assert told(caplog, logging.WARNING, "ran out")
    assert bodies(moody_shop) == ["a"]


def test_a_message_is_held_for_longer(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop, invisible=HALF_A_MINUTE).receive()
    for _ in range(3):
        moody_shop.later(20.0)
        message.extend()
    message.extend(timedelta(minutes=5))
    moody_shop.later(299.0)
    message.ack()


def test_many_messages_are_acknowledged_at_once_and_the_late_one_is_told(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b", "c")
    consumer = worker(moody_shop, invisible=HALF_A_MINUTE)
    (late,) = consumer.receive(1)
    moody_shop.later(30.0)
    rest = consumer.receive() + consumer.receive()
    with pytest.raises(ClaimLost):
        consumer.ack([message for message in rest if message.text() != "a"] + [late])
    assert sorted(message.text() for message in rest) == ["a", "b", "c"]
    moody_shop.later(30.0)
    assert bodies(moody_shop) == ["a"]


def test_what_the_inbox_knows_is_done(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    with message:
        raise AlreadyDone(message.id, message.group)
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []


def test_a_message_is_settled_once(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    one, two = worker(moody_shop).receive()
    one.ack()
    two.nack()
    for message, call in ((one, one.nack), (two, two.ack), (one, one.extend)):
        with pytest.raises(TransactionError, match="already"):
            call()
        with pytest.raises(TransactionError), message:
            pass


def test_a_message_that_was_settled_in_its_block_is_left_alone(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    one, two = worker(moody_shop).receive()
    with one:
        one.ack()
        raise ValueError("afterwards")
    with two:
        two.nack(delay=timedelta(0))
    assert bodies(moody_shop) == ["b"]


def test_only_messages_with_the_tag_are_received_and_the_others_are_done(moody_shop: Shop) -> None:
    wrote(moody_shop, *map(str, range(9)), tag="blue")
    wrote(moody_shop, "wanted", tag="red")
    (message,) = worker(moody_shop, tag="red", batch=2).receive()  # in one call, however many are passed over
    assert message.text() == "wanted"
    message.ack()
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []


class SlowLog:
    """A log that takes longer than a member holds its messages, once."""

    def __init__(self, shop: Shop) -> None:
        self._log, self._shop, self._slow = shop.store.log, shop, True

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        if self._slow:
            self._slow = False
            self._shop.later(30.0)
        return self._log.fetch(qid, offset, limit, end)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def test_what_ran_out_while_it_was_read_comes_again(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote(moody_shop, "unwanted", tag="blue")
    wrote(moody_shop, "wanted", tag="red")
    monkeypatch.setattr(moody_shop.store, "log", SlowLog(moody_shop))
    (message,) = worker(moody_shop, tag="red", invisible=HALF_A_MINUTE).receive()
    assert (message.text(), message.attempts) == ("wanted", 2)
    message.ack()


def test_what_came_back_is_found_at_once_when_there_is_nothing_new(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    consumer = worker(moody_shop)
    (message,) = consumer.receive()
    assert consumer.receive() == []
    message.nack(delay=timedelta(0))
    assert [message.text() for message in consumer.receive()] == ["a"]


@pytest.mark.req("RMQ-63")
def test_a_group_that_keeps_order_works_off_each_key_in_order(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, ordered=True)
    for text, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("x", None), ("b2", "b")):
        wrote(moody_shop, text, key=key)
    consumer = worker(moody_shop)
    first = consumer.receive()
    assert [message.text() for message in first] == ["a1", "b1", "x"]
    first[0].nack("broken")
    first[1].ack()
    assert [message.text() for message in consumer.receive()] == ["b2"]
    moody_shop.later(1.0)
    (again,) = consumer.receive()
    assert (again.text(), again.attempts) == ("a1", 2)
    again.ack()
    assert [message.text() for message in consumer.receive()] == ["a2"]


def test_a_changed_policy_is_followed(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.consume.consumer.POLICY", -1.0)  # look each time
    wrote(moody_shop, "a")
    consumer = worker(moody_shop)
    (message,) = consumer.receive()
    message.nack(delay=timedelta(0))
    moody_shop.store.groups.alter(GROUP, {"max_attempts": 2})
    (again,) = consumer.receive()
    again.nack("broken")
    assert [letter.cause for letter in letters(moody_shop)] == ["broken"]


def test_members_of_a_group_share_its_messages(moody_shop: Shop) -> None:
    wrote(moody_shop, *"abcdef")
    anna, berta = worker(moody_shop, member="anna", batch=1), worker(moody_shop, member="berta", batch=1)
    got = [[message.text() for message in (anna, berta)[turn % 2].receive()] for turn in range(7)]
    assert got == [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], []]


def test_a_consumer_that_was_dropped_without_a_word_is_gone(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")

    def dropped(member: str) -> ref[Consumer]:
        consumer = worker(moody_shop, member=member)
        consumer.receive()
        return ref(consumer)

    left = [dropped(f"member-{n}") for n in range(3)]
    gc.collect()
    assert [consumer() for consumer in left] == [None] * 3


def test_a_group_that_reads_a_stream_takes_no_work(moody_shop: Shop) -> None:
    moody_shop.store.groups.open(GROUP, Style.STREAM, Policy())
    with pytest.raises(GroupKindMismatch, match="stream"):
        worker(moody_shop)
    with pytest.raises(GroupKindMismatch):
        moody_shop.broker.create_group(GROUP)
    assert moody_shop.broker.consumer("another", [NEWS]).receive() == []
