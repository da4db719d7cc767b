"""What every store promises of transactions that another store coordinates: their votes wait for its word."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.contracts.samples import new_group
from tests.contracts.timing import Later
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import TxRecord
from txsaga.flows.requests import Guest
from txsaga.store.store import Store

FIRST, SECOND = UUID(int=1), UUID(int=2)
AGE = timedelta(milliseconds=20)
A_MOMENT = 0.1


def opened(store: Store, name: str, coordinator: UUID = FIRST) -> TxRecord:
    """Open the life of a branch."""
    group = new_group(store)
    with store.ledgers.open() as ledger:
        life = ledger.create(group, name, 1, coordinator=coordinator)
    assert life is not None
    return life


def voted(store: Store, name: str, coordinator: UUID = FIRST) -> TxRecord:
    """Open one and let it vote yes."""
    life = opened(store, name, coordinator)
    with store.ledgers.open() as ledger:
        ledger.lock(life.txid)
        ledger.move(life.txid, TxEvent.SEAL)
        ledger.move(life.txid, TxEvent.PREPARE)
    return life


def decided(store: Store, life: TxRecord, *, release: bool) -> None:
    """Commit one."""
    with store.ledgers.open() as ledger:
        ledger.lock(life.txid)
        ledger.move(life.txid, TxEvent.COMMIT)
        ledger.write_op(life.txid, Decision.COMMIT, from_check=False)
        if release:
            ledger.release(life.txid)


class GuestContract:
    """Transactions under another store, as the ports promise them."""

    def test_a_life_says_whose_branch_it_is(self, store: Store) -> None:
        life = opened(store, "one")
        assert (life.coordinator, life.voted) == (FIRST, False)
        yes = voted(store, "two")
        with store.ledgers.open() as ledger:
            found = ledger.lock(yes.txid)
        assert found is not None and found.voted

    @pytest.mark.req("WM-21")
    def test_what_voted_yes_is_listed_until_it_is_decided_and_released(self, store: Store) -> None:
        opened(store, "still open")
        waiting, forced, over = (voted(store, name) for name in ("waiting", "forced", "over"))
        decided(store, forced, release=False)
        decided(store, over, release=True)
        assert store.work.guests() == [
            Guest(waiting.txid, "waiting", FIRST, TxState.PREPARED),
            Guest(forced.txid, "forced", FIRST, TxState.COMMITTED),
        ]

    @pytest.mark.req("WM-48")
    def test_they_are_listed_by_coordinator_and_by_pages(self, store: Store) -> None:
        mine = [voted(store, f"mine {n}").txid for n in range(3)]
        theirs = voted(store, "theirs", SECOND).txid
        assert [each.txid for each in store.work.guests(FIRST)] == mine
        assert [each.txid for each in store.work.guests(SECOND)] == [theirs]
        assert [each.txid for each in store.work.guests(limit=2)] == mine[:2]
        assert [each.txid for each in store.work.guests(after=mine[1], limit=2)] == [mine[2], theirs]

    @pytest.mark.rule("R15")
    def test_no_sweep_ever_finds_what_voted_yes(self, store: Store, later: Later) -> None:
        voted(store, "voted")
        later(A_MOMENT)
        assert not store.doubts.waiting(AGE)
        store.doubts.sweep(AGE)
        assert store.doubts.due(10) == []
