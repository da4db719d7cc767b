"""What a step of a flow consumes is the flow's once the step is done, and goes back where it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.flows.coordinated.bank import START
from tests.flows.flow.desks import CHANGE, Desks
from tests.scene.shop import Shop
from tests.scene.worker import told, worker, wrote
from txsaga.broker import Broker
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.stream import Stream
from txsaga.errors import ClaimLost, LeaseLost, StepsOpen, Superseded, TransactionError

pytestmark = pytest.mark.postgres

ORDERS = "orders"
Send = Callable[..., None]


class Stop(Exception):
    """What the user's code raises."""


@pytest.fixture
def orders(desks: Desks) -> Send:
    """Give a way to send orders."""
    desks.bank.broker.create_topic(ORDERS, queues=1)
    desks.bank.broker.create_group("payments", first_retry=timedelta(0))

    def send(*bodies: str) -> None:
        for body in bodies:
            desks.bank.broker.producer("shop").send(ORDERS, body.encode())
        desks.bank.told()  # it dispatches

    return send


def consumer(broker: Broker) -> Consumer:
    """Join the group that pays."""
    return broker.consumer("payments", [ORDERS], invisible=timedelta(minutes=5))


def taken(broker: Broker, text: str) -> Delivery:
    """Take the next order, which is this one."""
    (message,) = consumer(broker).receive(1, wait=0)
    assert message.text() == text
    return message


def left(desks: Desks) -> list[tuple[str, int]]:
    """Return the orders that are still to be paid, and how often each was handed out."""
    found = []
    while more := consumer(desks.bank.broker).receive(1, wait=0):
        found += [(each.text(), each.attempts) for each in more]
    return sorted(found)


@pytest.mark.rule("R4", "R11")
def test_what_a_step_took_before_it_failed_comes_again_and_is_not_taken_off(desks: Desks, orders: Send) -> None:
    orders("a", "b")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow, consumer(broker) as group:
        first, second = group.receive(2, wait=0)
        with pytest.raises(Stop), flow.step("take"):
            flow.consume(first)
            raise Stop("no money")
        with flow.step("take"):
            flow.consume(second)
        flow.end()
    assert left(desks) == [("a", 2)]


@pytest.mark.req("IBM-11")
def test_of_two_messages_side_by_side_one_fails_and_leaves_no_trace(desks: Desks, orders: Send) -> None:
    orders("bad", "good")
    failing, going = desks.begin("current", key="bad"), desks.begin("current", key="good")
    with (
        desks.process() as broker,
        consumer(broker) as group,
        broker.flow(failing) as bad,
        broker.flow(going) as good,
    ):
        for flow, message in zip((bad, good), group.receive(2, wait=0), strict=True):
            with flow.step("take"):
                flow.consume(message)
        for flow, amount in ((bad, -1000), (good, 7)):
            with flow.step("pay", on="current", hold="journal") as journal:
                journal.execute(CHANGE, {"amount": amount, "id": 1}, rows=1)
        bad.roll_back()
        good.end()
    assert desks.bank.balances() == {"current": START + 7, "mortgage": START}
    assert left(desks) == [("bad", 2)]


@pytest.mark.rule("R4", "R11")
def test_what_a_process_took_that_died_in_its_step_comes_again(desks: Desks, orders: Send) -> None:
    orders("a", "b")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        dead = flow.step("take")
        dead.__enter__()
        flow.consume(taken(broker, "a"))  # and is never heard of again
        with desks.process() as other, other.flow(txid) as again:
            with again.step("take"):
                again.consume(taken(other, "b"))
            again.end()
        desks.stored.rows("UPDATE claim SET until = now()")
        assert left(desks) == [("a", 2)]


@pytest.mark.rule("R4", "R11")
def test_an_attempt_whose_place_was_taken_consumes_nothing(desks: Desks, orders: Send) -> None:
    orders("a", "b")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(Superseded), flow.step("take"):
            flow.consume(taken(broker, "a"))
            with desks.joined(txid) as other, desks.process() as others, other.step("take"):
                other.consume(taken(others, "b"))
        flow.end()
    assert left(desks) == [("a", 2)]


@pytest.mark.rule("R11")
def test_what_a_step_took_whose_failure_is_handled_comes_again(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(Stop), flow.step("take"):
            flow.consume(taken(broker, "a"))
            raise Stop
        flow.end(handled=["take"])
    assert left(desks) == [("a", 2)]


@pytest.mark.rule("R11")
def test_a_flow_that_is_rolled_back_has_what_its_done_steps_took_come_again(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with flow.step("take"):
            flow.consume(taken(broker, "a"))
        assert left(desks) == []
        flow.roll_back("the customer left")
    assert left(desks) == [("a", 2)]


@pytest.mark.rule("R11")
def test_a_step_whose_message_ran_out_is_not_done(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(ClaimLost), flow.step("take"):
            flow.consume(taken(broker, "a"))
            desks.stored.rows("UPDATE claim SET until = now()")
        with pytest.raises(StepsOpen):
            flow.end()
    assert left(desks) == [("a", 2)]


def test_a_message_is_held_for_longer_while_its_step_works(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with flow.step("take"):
            message = taken(broker, "a")
            flow.consume(message)
            message.extend(timedelta(hours=12))
            assert desks.stored.value("SELECT until > now() + interval '11 hours' FROM claim")
            with pytest.raises(TransactionError, match="taken already"):
                message.ack()
        with pytest.raises(TransactionError, match="bound already"):
            message.extend()


def test_what_an_interrupted_step_took_comes_again_uncounted(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(KeyboardInterrupt), flow.step("take"):
            flow.consume(taken(broker, "a"))
            raise KeyboardInterrupt
    assert left(desks) == [("a", 1)]


def test_a_step_that_fails_says_why_its_message_comes_again(desks: Desks, orders: Send) -> None:
    orders("a")
    desks.bank.broker.alter_group("payments", max_attempts=1)
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(Stop), flow.step("take"):
            flow.consume(taken(broker, "a"))
            raise Stop("no money")
    (letter,) = desks.bank.broker.dead_letters.list("payments")
    assert letter.cause == "its step failed: Stop: no money"


def test_a_message_that_can_not_be_put_back_does_not_hide_the_failure(
    desks: Desks, orders: Send, caplog: pytest.LogCaptureFixture
) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        with pytest.raises(Stop), flow.step("take"):
            flow.consume(taken(broker, "a"))
            desks.stored.rows("UPDATE claim SET until = now()")
            raise Stop
    assert told(caplog, logging.WARNING, "is redelivered when its claim expires")


def test_a_flow_consumes_in_its_steps_only(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        message = taken(broker, "a")
        with pytest.raises(TransactionError, match="consumes in its steps"):
            flow.consume(message)
        message.nack()
    assert left(desks) == [("a", 2)]


def test_a_message_of_another_store_is_no_flows(desks: Desks, moody_shop: Shop) -> None:
    txid = desks.begin()
    with desks.joined(txid) as flow:
        wrote(moody_shop, "a")
        (message,) = worker(moody_shop).receive(1)
        with pytest.raises(TransactionError, match="another store"), flow.step("take"):
            flow.consume(message)
        message.ack()


def stream(broker: Broker) -> Stream:
    """Read as the one member of a group."""
    return broker.stream("readers", [ORDERS], member="anna")


def offset(desks: Desks) -> int:
    """Return where the group of the stream stands."""
    return int(desks.stored.value("SELECT off FROM cursor WHERE grp = 'readers'"))


def next_of(readings: Stream) -> list[str]:
    """Return what the next chunk holds."""
    batch = readings.poll()
    return [] if batch is None else [message.text() for message in batch.messages()]


@pytest.mark.rule("R4", "R11")
def test_a_chunk_that_a_failed_step_consumed_comes_again(desks: Desks, orders: Send) -> None:
    orders("a")
    orders("b")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        readings = stream(broker)
        with pytest.raises(Stop), flow.step("read"):
            flow.consume(readings, readings.poll())
            flow.consume(readings, readings.poll())
            raise Stop
        with flow.step("read"):
            batch = readings.poll()
            assert batch is not None
            assert [message.text() for message in batch.messages()] == ["a"]
            flow.consume(readings, batch)
        flow.end()
        assert offset(desks) == 1
        assert next_of(readings) == ["b"]


@pytest.mark.rule("R11")
def test_chunks_of_several_steps_move_the_cursor_together(desks: Desks, orders: Send) -> None:
    orders("a")
    orders("b")
    orders("c")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        readings = stream(broker)
        with flow.step("read"):
            flow.consume(readings, readings.poll())
            flow.consume(readings, readings.poll())
        with flow.step("read on"):
            flow.consume(readings, readings.poll())
        assert offset(desks) == 0
        flow.end()
        assert offset(desks) == 3


@pytest.mark.rule("R11")
def test_a_flow_that_is_rolled_back_has_its_chunks_read_again(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        readings = stream(broker)
        with flow.step("read"):
            flow.consume(readings, readings.poll())
        assert readings.poll() is None
        flow.roll_back()
        assert next_of(readings) == ["a"]


@pytest.mark.rule("R11")
def test_a_step_whose_queue_is_another_members_by_now_is_not_done(desks: Desks, orders: Send) -> None:
    orders("a")
    txid = desks.begin()
    with desks.process() as broker, broker.flow(txid) as flow:
        readings = stream(broker)
        with pytest.raises(LeaseLost), flow.step("read"):
            flow.consume(readings, readings.poll())
            desks.stored.rows("UPDATE cursor SET owner = 'bert', epoch = epoch + 1")
        with pytest.raises(StepsOpen):
            flow.end()
    assert offset(desks) == 0
