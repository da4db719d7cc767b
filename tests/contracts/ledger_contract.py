"""What every store promises of keyed transactions while they are open: lives, owners, contributions."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    add,
    new_group,
    new_queues,
    opened,
    prepared,
    read,
    row,
    settle,
)
from txsaga.core.lifecycle import TRANSACTION, TxEvent, TxState
from txsaga.core.records import LateSlot
from txsaga.errors import ConfigError, IllegalTransition, TransactionError, TxSagaError
from txsaga.flows.ballot import Ballot, CastVote, Rule
from txsaga.store.store import Store

WAY_TO: Mapping[TxState, tuple[TxEvent, ...]] = {
    TxState.ACTIVE: (),
    TxState.SEALED: (TxEvent.SEAL,),
    TxState.PREPARED: (TxEvent.SEAL, TxEvent.PREPARE),
    TxState.PARKED: (TxEvent.SEAL, TxEvent.PARK),
    TxState.COMMITTED: (TxEvent.SEAL, TxEvent.COMMIT),
    TxState.ROLLED_BACK: (TxEvent.ROLL_BACK,),
}


class WorkFailed(Exception):
    """What the user's code raises inside a block."""


class LedgerContract:
    """Open keyed transactions, as the port `Ledger` promises them."""

    def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life, numbers = opened(store, group), list[int]()
        with pytest.raises(WorkFailed), store.ledgers.open() as ledger:
            other = ledger.create(group, "other", 1)
            assert other is not None
            numbers.append(other.txid)
            ledger.take_over(life.txid)
            ledger.add(other, 1, [row(qid, "a")])
            ledger.win(other.txid, 1, other.owner)
            ledger.reserve(LateSlot(txid=life.txid, slot=1, qid=qid))
            ledger.move(life.txid, TxEvent.ROLL_BACK)
            ledger.write_op(life.txid, ROLLBACK, from_check=False)
            raise WorkFailed
        with store.ledgers.open() as ledger:
            assert ledger.lock(life.txid) == life
            assert ledger.standing(life.txid) is None
            assert ledger.latest(group, "other") is None
            assert not ledger.slots(life.txid)
        assert not store.halves.views(numbers[0])
        assert read(store, qid) == []

    def test_a_new_life_is_active_and_numbered_behind_all_others(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"))
        life = opened(store, group, "order-42")
        assert (life.group, life.key, life.epoch, life.state) == (group, "order-42", 1, TxState.ACTIVE)
        assert (life.evidence, life.txid > receipt.txid) == (None, True)
        assert prepared(store, group, row(qid, "b")).txid > life.txid

    def test_an_epoch_of_a_key_is_opened_once(self, store: Store) -> None:
        group = new_group(store)
        life = opened(store, group, "order-42")
        with store.ledgers.open() as ledger:
            assert ledger.create(group, "order-42", 1) is None
            assert ledger.latest(group, "order-42") == life

    def test_each_epoch_is_a_life_with_a_number_of_its_own(self, store: Store) -> None:
        group = new_group(store)
        first = opened(store, group, "order-42")
        settle(store, first, ROLLBACK)
        second = opened(store, group, "order-42", epoch=2)
        assert second.txid != first.txid
        with store.ledgers.open() as ledger:
            assert ledger.latest(group, "order-42") == second

    def test_a_key_belongs_to_its_group(self, store: Store) -> None:
        shop, bank = new_group(store), new_group(store, "bank")
        life = opened(store, shop, "order-42")
        with store.ledgers.open() as ledger:
            assert ledger.latest(bank, "order-42") is None
            assert ledger.latest(shop, "order-43") is None
        assert opened(store, bank, "order-42").txid != life.txid

    def test_transactions_without_a_key_never_meet(self, store: Store) -> None:
        group = new_group(store)
        assert opened(store, group, None).txid != opened(store, group, None).txid

    def test_an_unknown_transaction_has_no_life(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        plain = prepared(store, group, row(qid, "a"))
        with store.ledgers.open() as ledger:
            assert ledger.lock(plain.txid) is None
            assert ledger.share(plain.txid + 1000) is None

    @pytest.mark.rule("R4")
    def test_each_take_over_raises_the_owner(self, store: Store) -> None:
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            second = ledger.take_over(life.txid)
        with store.ledgers.open() as ledger:
            third = ledger.take_over(life.txid)
            assert ledger.lock(life.txid) == third
        assert life.owner < second.owner < third.owner

    @pytest.mark.rule("R4")
    def test_a_take_over_drops_the_places_for_bodies_that_will_never_come(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        slot = LateSlot(txid=life.txid, slot=1, qid=qid)
        with store.ledgers.open() as ledger:
            ledger.reserve(slot)
            ledger.reserve(LateSlot(txid=life.txid, slot=2, qid=qid))
        with store.ledgers.open() as ledger:
            ledger.take_over(life.txid)
            ledger.reserve(slot)
            assert list(ledger.slots(life.txid)) == [slot]

    @pytest.mark.rule("R1")
    @pytest.mark.parametrize("event", [TxEvent.SEAL, TxEvent.ROLL_BACK])
    def test_only_an_active_life_is_taken_over(self, store: Store, event: TxEvent) -> None:
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, event)
        with pytest.raises(TransactionError), store.ledgers.open() as ledger:
            ledger.take_over(life.txid)

    @pytest.mark.req("RMQ-64")
    @pytest.mark.parametrize("state", TxState)
    def test_a_life_moves_by_its_table_only(self, store: Store, state: TxState) -> None:
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            for event in WAY_TO[state]:
                ledger.move(life.txid, event)
        for event in TxEvent:
            if (state, event) not in TRANSACTION.moves:
                with pytest.raises(IllegalTransition), store.ledgers.open() as ledger:
                    ledger.move(life.txid, event)
        with store.ledgers.open() as ledger:
            moved = ledger.lock(life.txid)
        assert moved is not None
        assert moved.state is state

    def test_the_resource_of_the_evidence_is_kept_with_the_life(self, store: Store) -> None:
        resource = store.registry.resource("billing", store.registry.identity.uuid)
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL, evidence=resource.id)
            ledger.move(life.txid, TxEvent.PREPARE)
            ended = ledger.lock(life.txid)
        assert ended is not None
        assert ended.evidence == resource.id

    @pytest.mark.req("RMQ-03")
    def test_nobody_reads_an_open_transaction(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "a"))
        assert read(store, qid) == []
        (view,) = store.halves.views(life.txid)
        assert (view.prepared, view.flag, view.real_topic) == (True, "NOT", "orders")

    def test_the_same_chunk_is_not_added_twice(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "a"))
        with pytest.raises(TxSagaError):
            add(store, life, 1, row(qid, "b"))
        settle(store, life, COMMIT)
        assert read(store, qid) == ["a"]

    def test_places_for_late_bodies_are_kept_in_order(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life, other = opened(store, group), opened(store, group, "other")
        slots = [
            LateSlot(txid=life.txid, slot=1, qid=qid),
            LateSlot(txid=life.txid, slot=2, qid=qid, key="k", tag="t", headers={"a": "b"}, ordering_key="o"),
        ]
        with store.ledgers.open() as ledger:
            for slot in reversed(slots):
                ledger.reserve(slot)
            ledger.reserve(LateSlot(txid=other.txid, slot=1, qid=qid))
        with store.ledgers.open() as ledger:
            assert list(ledger.slots(life.txid)) == slots

    def test_a_ballot_is_called_once_and_the_same_once_more_changes_nothing(self, store: Store) -> None:
        life, called = opened(store, new_group(store)), Ballot(name="release", voters=("anna", "bert"))
        with store.ledgers.open() as ledger:
            ledger.call(life.txid, called)
            assert ledger.cast(life.txid, "release", CastVote(voter="anna", yes=True))
        for other in ({"voters": ("anna",)}, {"rule": Rule.WARN}, {"rule": Rule.QUORUM, "needed": 1}):
            with pytest.raises(ConfigError, match="'release' is already called"), store.ledgers.open() as ledger:
                ledger.call(life.txid, replace(called, **other))
        with store.ledgers.open() as ledger:
            ledger.call(life.txid, replace(called, voters=("bert", "anna")))
            (poll,) = ledger.ballots(life.txid)
        assert poll.ballot == called
        assert [cast.voter for cast in poll.casts] == ["anna"]
