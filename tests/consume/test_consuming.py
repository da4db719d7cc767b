"""Messages consumed by a transaction: its decision says what becomes of them."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tests.scene.elsewhere import Elsewhere
from tests.scene.shop import ORDERS, Shop
from tests.scene.worker import GROUP, bodies, letters, told, worker, wrote
from txsaga import Decision
from txsaga.errors import ClaimLost, Superseded, TransactionError

HALF_A_MINUTE, LONG = timedelta(seconds=30), 600.0


@pytest.mark.rule("R11")
def test_a_commit_takes_the_message_off_with_what_was_sent(moody_shop: Shop) -> None:
    wrote(moody_shop, "a", "b")
    producer = moody_shop.producer()
    for message in worker(moody_shop).messages(wait=0):
        with message, producer.transaction() as tx:
            tx.consume(message)
            tx.send(ORDERS, message.body)
    moody_shop.later(LONG)
    assert (bodies(moody_shop), sorted(moody_shop.bodies())) == ([], ["a", "b"])


@pytest.mark.req("IBM-07", "IBM-61")
@pytest.mark.rule("R11")
def test_an_exception_rolls_back_and_the_message_comes_again_counted(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    wrote(moody_shop, "a", "b")
    producer, done = moody_shop.producer(), []
    (sent, _) = moody_shop.read("news")
    for message in worker(moody_shop).messages(wait=0):
        with message, producer.transaction() as tx:
            tx.consume(message)
            tx.send(ORDERS, message.body)
            if message.text() == "a":
                raise ValueError("no chair is left")
            done.append(message.text())
    assert done == ["b"]
    assert told(caplog, logging.WARNING, "no chair is left")
    assert bodies(moody_shop) == []  # it rests
    moody_shop.later(1.0)
    (again,) = worker(moody_shop).receive()
    assert (again.delivered, again.attempts) == (sent, 2)
    assert moody_shop.bodies() == ["b"]


@pytest.mark.req("IBM-61", "IBM-62")
def test_a_letter_tells_why_its_transactions_were_rolled_back(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=2)
    wrote(moody_shop, "a")
    for cause in ("no bank", "no \0 money"):
        for message in worker(moody_shop).messages(wait=0):
            with message, moody_shop.producer().transaction() as tx:
                tx.consume(message)
                raise ValueError(cause)
        moody_shop.later(LONG)
    assert bodies(moody_shop) == []
    (letter,) = letters(moody_shop)
    causes = [str(entry["cause"]).split(": ", 1)[1] for entry in letter.history[:2]]
    assert causes == ["the block raised ValueError: no bank", "the block raised ValueError: no � money"]


@pytest.mark.rule("R11")
def test_a_consumed_message_is_the_transactions_until_it_is_decided(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop, invisible=HALF_A_MINUTE).receive()
    with moody_shop.producer().transaction() as tx:
        tx.consume(message)
        for call in (message.ack, message.nack, message.extend, lambda: tx.consume(message)):
            with pytest.raises(TransactionError, match="bound already"):
                call()
        moody_shop.later(LONG)
        assert bodies(moody_shop) == []
    assert tx.decision is Decision.COMMIT
    assert bodies(moody_shop) == []


@pytest.mark.rule("R11")
def test_a_message_that_was_lost_rolls_the_transaction_back(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop, invisible=HALF_A_MINUTE).receive()
    moody_shop.later(30.0)
    with pytest.raises(ClaimLost), moody_shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair")
        tx.consume(message)
    assert tx.decision is Decision.ROLLBACK
    assert (moody_shop.bodies(), bodies(moody_shop)) == ([], ["a"])


@pytest.mark.req("IBM-07", "IBM-61")
@pytest.mark.rule("R4", "R11")
def test_a_producer_that_died_is_rolled_back_and_its_message_comes_again(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    lost = Elsewhere(moody_shop.producer().transaction(key="order-42")).__enter__()
    lost.consume(message)  # and is never heard of again
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []
    with moody_shop.producer().transaction(key="order-42") as tx:
        moody_shop.later(1.0)
        (again,) = worker(moody_shop).receive()
        assert (again.text(), again.attempts) == ("a", 2)
        tx.consume(again)
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []


@pytest.mark.rule("R3", "R4", "R11")
def test_an_owner_that_was_superseded_consumes_nothing(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    late = Elsewhere(moody_shop.producer().transaction(key="order-42")).__enter__()
    with moody_shop.producer().transaction(key="order-42") as tx:
        with pytest.raises(Superseded):
            late.consume(message)
        tx.consume(message)
    assert tx.decision is Decision.COMMIT
    moody_shop.later(LONG)
    assert bodies(moody_shop) == []


@pytest.mark.rule("R11")
def test_check_back_rolls_an_abandoned_transaction_back_and_its_message_comes_again(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    lost = Elsewhere(moody_shop.producer().transaction(key="order-42")).__enter__()
    lost.consume(message)
    moody_shop.later(24 * 3600.0)
    moody_shop.check()
    moody_shop.later(LONG)
    (again,) = worker(moody_shop).receive()
    assert (again.text(), again.attempts) == ("a", 2)


def test_work_that_fails_before_it_consumes_puts_the_message_back(moody_shop: Shop) -> None:
    wrote(moody_shop, "a")
    (message,) = worker(moody_shop).receive()
    with message, moody_shop.producer().transaction() as tx:
        tx.send(ORDERS, message.body)
        raise ValueError("broken")
    assert tx.decision is Decision.ROLLBACK
    moody_shop.later(1.0)
    assert bodies(moody_shop) == ["a"]
