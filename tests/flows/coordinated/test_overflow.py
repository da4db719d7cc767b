"""A message that is refused for want of room is missing: the rest is never committed without it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from txsaga.core.decision import Decision
from txsaga.errors import InvalidMessage, TransactionError

pytestmark = pytest.mark.postgres


def test_a_block_that_grew_too_big_is_rolled_back_even_if_that_error_is_dropped(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    with pytest.raises(TransactionError, match="no room"), bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        tx.send(TRANSFERS, b"small")
        with suppress(InvalidMessage):
            tx.send(TRANSFERS, b"x" * 2_000)
        tx.send(TRANSFERS, b"small, too")
    assert tx.decision is Decision.ROLLBACK
    assert (bank.balances(), bank.told()) == ({"current": START, "mortgage": START}, [])
