"""What every store promises of replays: only what counted is copied, and a transaction is tied to one copy."""

# The name of a test is a sentence.

from __future__ import annotations

import pytest

from tests.contracts.samples import (
    COMMIT,
    PATIENCE,
    ROLLBACK,
    add,
    decide_life,
    decided,
    end_of,
    is_held,
    new_group,
    new_queues,
    opened,
    prepared,
    read,
    row,
    settle,
    start,
)
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import TxRecord
from txsaga.messages.ledger_store import Ledger
from txsaga.store.store import Store


def copied(ledger: Ledger, txid: int, group: int) -> TxRecord:
    """Copy a transaction into a new one, committed, in an open block."""
    life = ledger.create(group, None, 1)
    assert life is not None
    assert ledger.copy(txid, life) > 0
    decide_life(ledger, life.txid, COMMIT)
    return life


class ReplayContract:
    """The part of the port `Ledger` that replays use."""

    @pytest.mark.req("IBM-65")
    def test_a_copy_of_a_half_is_delivered_and_the_old_one_stays_as_it_is(self, store: Store) -> None:
        one, two = new_queues(store, count=2)
        group = new_group(store)
        receipt = prepared(store, group, row(one, "a", "b"), row(one, "c", chunk=1), row(two, "d"))
        decided(store, end_of(receipt, ROLLBACK))
        before = store.halves.views(receipt.txid)
        with store.ledgers.open() as ledger:
            copied(ledger, receipt.txid, group)
        assert (read(store, one), read(store, two)) == (["a", "b", "c"], ["d"])
        assert list(store.halves.views(receipt.txid)) == list(before)

    @pytest.mark.req("IBM-65")
    @pytest.mark.rule("R4")
    def test_only_attempts_that_won_are_copied(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "superseded"), win=False)
        add(store, life, 3, row(qid, "never won"), win=False)
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            second = ledger.take_over(life.txid)
        add(store, second, 1, row(qid, "b"))
        add(store, second, 0, row(qid, "a"))
        settle(store, second, ROLLBACK)
        with store.ledgers.open() as ledger:
            copied(ledger, life.txid, group)
        assert read(store, qid) == ["a", "b"]

    @pytest.mark.req("IBM-65")
    def test_a_transaction_is_tied_once_and_both_know_it(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, ROLLBACK))
        with store.ledgers.open() as ledger:
            assert ledger.replay_of(receipt.txid) is None
            new = copied(ledger, receipt.txid, group)
            assert ledger.tie(receipt.txid, new.txid)
        with store.ledgers.open() as ledger:
            assert ledger.replay_of(receipt.txid) == new.txid
            assert not ledger.tie(receipt.txid, copied(ledger, receipt.txid, group).txid)
        old, made = (store.overview.trace(txid) for txid in (receipt.txid, new.txid))
        assert old is not None and made is not None
        assert (old.replayed_as, old.replays, made.replayed_as, made.replays) == (new.txid, None, None, receipt.txid)

    @pytest.mark.req("IBM-65")
    def test_whoever_ties_second_waits_for_the_first(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, ROLLBACK))
        others = [opened(store, group, key).txid for key in ("one", "two")]

        def tie() -> bool:
            with store.ledgers.open() as ledger:
                return ledger.tie(receipt.txid, others[1])

        with store.ledgers.open() as ledger:
            assert ledger.tie(receipt.txid, others[0])
            second = start(tie)
            assert is_held(second)
        assert second.result(PATIENCE) is False

    def test_a_block_that_fails_has_tied_and_copied_nothing(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        decided(store, end_of(receipt, ROLLBACK))
        with pytest.raises(ZeroDivisionError), store.ledgers.open() as ledger:
            ledger.tie(receipt.txid, copied(ledger, receipt.txid, group).txid)
            raise ZeroDivisionError
        with store.ledgers.open() as ledger:
            assert ledger.replay_of(receipt.txid) is None
        assert read(store, qid) == []

    def test_places_for_late_bodies_are_not_taken_for_a_tie(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        receipt = prepared(store, group, row(qid, "a"))
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.move(life.txid, TxEvent.SEAL)
            assert ledger.tie(receipt.txid, life.txid)
            assert list(ledger.slots(life.txid)) == list(ledger.slots(receipt.txid)) == []
