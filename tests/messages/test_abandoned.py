"""An open transaction that its owner has given up ends; one whose owner is alive does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.scene.elsewhere import Elsewhere
from tests.scene.shop import ORDERS, Shop
from txsaga.checkback.profile import LEASE
from txsaga.errors import DecidedOtherwise
from txsaga.messages.transaction import Transaction

MOST_OF_IT = LEASE.total_seconds() * 0.6  # twice that is more than all of it, and a slow machine has time


@pytest.fixture(params=["shop", "moody_shop"], ids=["home", "memory"])
def any_shop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Give a shop on the home database, and one in memory, where every send is stored at once."""
    monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 0)
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Shop)
    return found


def opened(shop: Shop, key: str | None = "order-1") -> Transaction:
    """Leave a transaction open, as a process that died there."""
    tx = Elsewhere(shop.producer().transaction(key=key)).__enter__()
    tx.join_life()
    return tx


@pytest.mark.rule("R13")
@pytest.mark.parametrize("key", [None, "order-1"])
def test_a_transaction_whose_owner_died_is_rolled_back_in_the_end(any_shop: Shop, key: str | None) -> None:
    tx = opened(any_shop, key)
    assert tx.txid is not None
    any_shop.later(MOST_OF_IT)
    assert (any_shop.round(), any_shop.state(tx.txid)) == (0, "active")
    any_shop.later(MOST_OF_IT)
    assert (any_shop.round(), any_shop.state(tx.txid)) == (1, "rolled_back")
    assert any_shop.round() == 0


@pytest.mark.rule("R3")
def test_an_owner_who_comes_later_hears_of_it_and_stores_nothing(any_shop: Shop) -> None:
    tx = opened(any_shop)
    assert tx.txid is not None
    any_shop.later(2 * MOST_OF_IT)
    assert any_shop.check() == 1
    with pytest.raises(DecidedOtherwise, match="ROLLBACK"):
        tx.send(ORDERS, b"too late")
    assert any_shop.store.halves.views(tx.txid) == []


STEPS = {
    "send": lambda tx: tx.send(ORDERS, b"a chair"),
    "later": lambda tx: tx.later(ORDERS),
    "prepare": lambda tx: tx.prepare(),
}


@pytest.mark.parametrize("step", ["send", "later"])
def test_each_step_of_its_owner_keeps_a_transaction_open(any_shop: Shop, step: str) -> None:
    tx = opened(any_shop)
    for _ in range(3):
        any_shop.later(MOST_OF_IT)
        STEPS[step](tx)
    assert any_shop.round() == 0
    assert tx.txid is not None
    assert any_shop.state(tx.txid) == "active"


@pytest.mark.parametrize("step", [*STEPS, "retry"])
def test_a_step_of_its_owner_takes_a_transaction_off_the_list(any_shop: Shop, step: str) -> None:
    tx = opened(any_shop)
    any_shop.later(2 * MOST_OF_IT)
    doubts = any_shop.store.doubts
    assert doubts.sweep(timedelta(seconds=6)) == 1
    assert [doubt.txid for doubt in doubts.due(10)] == [tx.txid]
    if step == "retry":
        opened(any_shop)
    else:
        STEPS[step](tx)
    assert list(doubts.due(10)) == []
    assert doubts.sweep(timedelta(seconds=6)) == 0
