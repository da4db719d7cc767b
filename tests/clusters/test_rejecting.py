"""A broker that begins no transactions now: the others take the messages, and it is read as ever."""

from __future__ import annotations

import pytest

from tests.clusters.town import NAMES, ORDERS, Town
from txsaga.errors import PinRefused, TransactionsRejected

pytestmark = pytest.mark.postgres


def test_what_a_broker_rejects_the_others_take(town: Town) -> None:
    town.direct["b1"].reject_transactions(True)
    cluster = town.cluster()
    for body in (b"one", b"two"):
        with cluster.producer("shop").transaction() as tx:
            tx.send(ORDERS, body)
        assert "b1" not in tx.participants
    assert town.all_told() == [[], ["one"], ["two"]]
    town.direct["b1"].reject_transactions(False)
    for _ in NAMES:
        with cluster.producer("shop").transaction() as tx:
            tx.send(ORDERS, b"three")
    assert town.told("b1") == ["three"]


def test_a_broker_that_rejects_transactions_is_read_as_ever(town: Town) -> None:
    with town.cluster(names=("b1",)).producer("shop").transaction() as tx:
        tx.send(ORDERS, b"before")
    town.direct["b1"].reject_transactions(True)
    cluster = town.cluster()
    with cluster.producer("shop").transaction() as tx:
        tx.send(ORDERS, b"behind")
    town.tick("b1", "b2")
    with cluster.consumer("reader", [ORDERS]) as reader:
        found = reader.receive(2, wait=5.0)
        if len(found) < 2:
            found += reader.receive(1, wait=5.0)
        messages = {each.broker: each.message for each in found}
        assert {name: message.text() for name, message in messages.items()} == {"b1": "before", "b2": "behind"}
        with pytest.raises(TransactionsRejected), cluster.producer("shop").transaction() as tx:
            tx.consume(messages["b1"])


def test_where_all_reject_the_caller_hears_of_it(town: Town) -> None:
    for broker in town.direct.values():
        broker.reject_transactions(True)
    with pytest.raises(TransactionsRejected, match="NO_PERMISSION"), town.cluster().producer("shop").transaction():
        pytest.fail("the block ran")


def test_who_is_pinned_to_a_broker_that_rejects_hears_of_it(town: Town) -> None:
    town.direct["b1"].reject_transactions(True)
    with pytest.raises(PinRefused, match="b1"), town.cluster(override=True).producer("shop").transaction(nodes=["b1"]):
        pytest.fail("the block ran")
