"""A flow that was committed is amended by a new life of its key, once for each word by which it is begun."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.flow.desks import KEY, Desks
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.message import Delivered, Message
from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.flows.flow import AMENDS

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R4")]


def paid(desks: Desks, amount: int, **said: Any) -> int:  # as a flow is begun
    """Do and commit a flow that changes a balance and tells so."""
    txid = desks.begin("current", **said)
    desks.pay(txid, "debit", -amount, on="current")
    with desks.joined(txid) as flow, flow.step("tell"):
        flow.send(TRANSFERS, str(amount).encode(), headers={"why": "rent"})
    desks.end(txid)
    return txid


def told(desks: Desks) -> list[Delivered]:
    """Return the messages that everybody sees, with their headers."""
    with desks.process() as broker:
        while Dispatcher(broker.kernel).run_once():
            pass
        stream = broker.stream("reader", [TRANSFERS])
        found: list[Delivered] = []
        while (batch := stream.poll()) is not None:
            found += batch.messages()
        stream.close()
        return found


def test_an_amendment_is_a_new_life_whose_messages_name_what_they_amend(desks: Desks) -> None:
    first = paid(desks, 10, amend="one")
    second = paid(desks, 5, amend="two")
    assert second != first
    with desks.process() as broker:
        ids = {txid: broker.identity.transaction(txid) for txid in (first, second)}
        views = {
            view.txid: (view.key, view.epoch)
            for view in broker.kernel.store.overview.transactions(undecided=False, limit=9)
        }
    assert (views[first], views[second]) == ((KEY, 1), (KEY, 2))
    messages = [(each.text(), dict(each.headers)) for each in told(desks)]
    assert messages == [("10", {"why": "rent"}), ("5", {"why": "rent", AMENDS: ids[first]})]
    assert desks.bank.balances()["current"] == START - 15  # rows are written by whoever writes the step


def test_without_a_word_what_is_committed_stays_as_it_is(desks: Desks) -> None:
    first = paid(desks, 10)
    with pytest.raises(AlreadyCommitted) as done:
        desks.begin("current")
    assert done.value.txid == first
    with pytest.raises(ConfigError, match="amend is int; give an identifier that is the same each time"):
        desks.begin("current", amend=7)


def test_the_same_word_joins_its_amendment_and_finds_it_committed(desks: Desks) -> None:
    paid(desks, 10, amend="one")
    with pytest.raises(AlreadyCommitted):
        desks.begin("current", amend="one")
    second = desks.begin("current", amend="two")
    assert desks.begin("current", amend="two") == second
    with desks.joined(second) as flow:
        flow.end()
    with pytest.raises(AlreadyCommitted) as done:
        desks.begin("current", amend="two")
    assert done.value.txid == second


def test_a_word_that_was_said_before_amends_nothing(desks: Desks) -> None:
    first = paid(desks, 10, amend="one")
    second = paid(desks, 5, amend="two")
    for word, txid in (("one", first), ("two", second)):
        with pytest.raises(AlreadyCommitted) as done:
            desks.begin("current", amend=word)
        assert done.value.txid == txid
    third = desks.begin("current", amend="three")
    with desks.joined(third) as flow:
        flow.roll_back("it was no better")
    with pytest.raises(AlreadyCommitted):
        desks.begin("current", amend="one")


def test_an_amendment_that_is_rolled_back_leaves_what_it_amends_and_is_begun_anew(desks: Desks) -> None:
    first = paid(desks, 10, amend="one")
    second = desks.begin("current", amend="two")
    desks.pay(second, "debit", -5, on="current")
    with desks.joined(second) as flow:
        flow.roll_back("it was no better")
    assert desks.bank.balances()["current"] == START - 10
    with pytest.raises(AlreadyCommitted) as done:
        desks.begin("current")
    assert done.value.txid == first
    third = desks.begin("current", amend="two")
    with desks.process() as broker:
        first_id = broker.identity.transaction(first)
    with desks.joined(third) as flow:
        assert flow.amends == first_id
        flow.end()


def test_no_other_kind_of_transaction_takes_the_key_behind_an_amendment_that_failed(desks: Desks) -> None:
    first = paid(desks, 10, amend="one")
    second = desks.begin("current", amend="two")
    with desks.joined(second) as flow:
        with flow.step("tell"):
            flow.send(TRANSFERS, b"5")
        flow.roll_back("it was no better")
    with desks.producer() as producer, pytest.raises(AlreadyCommitted) as done:
        producer.transaction(key=KEY).__enter__()
    assert done.value.txid == first
    with desks.process() as broker, pytest.raises(AlreadyCommitted) as done:
        broker.replay(second, who="anna", why="it was good enough")
    assert done.value.txid == first


def test_one_that_joins_an_amendment_by_a_later_word_is_committed_by_that(desks: Desks) -> None:
    paid(desks, 10, amend="one")
    second = desks.begin("current", amend="two")
    assert desks.begin("current", amend="three") == second
    desks.end(second)
    with pytest.raises(AlreadyCommitted):
        desks.begin("current", amend="three")


def test_an_amendment_takes_no_other_messages_than_what_it_amends(desks: Desks) -> None:
    paid(desks, 10, amend="one")
    second = desks.begin("current", amend="two")
    with desks.process() as broker:
        while Dispatcher(broker.kernel).run_once():
            pass
        consumer = broker.consumer("tellers", [TRANSFERS])
        (message,) = consumer.receive(1)
        with broker.flow(second) as flow, pytest.raises(ConfigError, match="another message can't amend it"):
            with flow.step("take"):
                flow.consume(message)
        consumer.close()


def test_a_message_given_whole_keeps_its_headers(desks: Desks) -> None:
    first = paid(desks, 10, amend="one")
    second = desks.begin("current", amend="two")
    with desks.joined(second) as flow:
        with flow.step("tell"):
            flow.send(Message(TRANSFERS, b"5", headers={"a": "b"}))
        flow.end()
    with desks.process() as broker:
        assert dict(told(desks)[-1].headers) == {"a": "b", AMENDS: broker.identity.transaction(first)}
