"""What programs hold says what it is when it is printed."""

from __future__ import annotations

import pytest

from tests.scene.shop import ORDERS, Shop

pytestmark = pytest.mark.postgres


def test_what_a_program_holds_says_what_it_is(shop: Shop) -> None:
    namespace = shop.store.namespace
    assert repr(shop.broker) == f"<Broker {namespace} in database {shop.store.engine.url.database}>"
    producer = shop.producer(group="shop")
    assert repr(producer) == "<Producer shop>"
    with shop.broker.consumer("billing", [ORDERS], member="anna") as consumer:
        assert repr(consumer) == "<Consumer anna of group billing>"
    with shop.broker.stream("audit", [ORDERS], member="anna") as stream:
        assert repr(stream) == "<Stream anna of group audit>"


def test_a_transaction_says_how_far_it_is(shop: Shop) -> None:
    tx = shop.producer().transaction(key="order-1")
    assert repr(tx) == "<Transaction not stored, new>"
    with tx:
        tx.send(ORDERS, b"a chair")
        assert repr(tx) == f"<Transaction {tx.txid}, open>"
    assert repr(tx) == f"<Transaction {tx.txid}, commit>"


def test_a_flow_says_whether_it_is_decided(shop: Shop) -> None:
    flow = shop.producer().begin_flow(key="trip")
    assert repr(flow) == f"<Flow {flow.txid}, undecided>"
    flow.end()
    assert repr(flow) == f"<Flow {flow.txid}, commit>"
