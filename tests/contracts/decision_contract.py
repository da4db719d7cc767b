"""What every store promises of the decision of a keyed transaction: one, for the winners, against writers."""

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
    entries,
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
from txsaga.core.decision import Decision
from txsaga.core.layout import Batch
from txsaga.core.lifecycle import TxState
from txsaga.core.records import LateSlot
from txsaga.errors import IllegalTransition, TransactionError
from txsaga.evidence.late_bodies import lay_out
from txsaga.store.store import Store

BOTH = [COMMIT, ROLLBACK]


class DecisionContract:
    """Decisions of keyed transactions, as the ports `Ledger` and `Log` promise them."""

    @pytest.mark.req("RMQ-21")
    @pytest.mark.parametrize("decision", BOTH)
    def test_the_decision_is_on_record(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        keyed, plain = opened(store, group), prepared(store, group, row(qid, "a"))
        settle(store, keyed, decision)
        decided(store, end_of(plain, decision))
        with store.ledgers.open() as ledger:
            assert [ledger.standing(txid) for txid in (keyed.txid, plain.txid)] == [decision, decision]

    @pytest.mark.req("RMQ-92")
    @pytest.mark.parametrize("late", BOTH)
    def test_a_second_decision_is_refused(self, store: Store, late: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "a"))
        settle(store, life, COMMIT)
        with store.ledgers.open() as ledger:
            assert not ledger.write_op(life.txid, late, from_check=True)
        with store.ledgers.open() as ledger:
            assert ledger.standing(life.txid) is COMMIT
        assert read(store, qid) == ["a"]

    def test_a_commit_shows_all_parts_in_their_order(self, store: Store) -> None:
        qids, group = new_queues(store, count=2), new_group(store)
        life = opened(store, group)
        add(store, life, 2, row(qids[0], "c"))
        add(store, life, 1, row(qids[0], "a", chunk=0), row(qids[1], "x"), row(qids[0], "b", chunk=1))
        settle(store, life, COMMIT)
        assert [read(store, qid) for qid in qids] == [["a", "b", "c"], ["x"]]

    def test_a_rollback_shows_nothing(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "a"))
        settle(store, life, ROLLBACK)
        assert read(store, qid) == []
        assert [view.flag for view in store.halves.views(life.txid)] == ["ROLLBACK"]

    def test_a_decision_under_way_is_not_ticked_and_not_forgotten(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life, plain = opened(store, group), prepared(store, group, row(qid, "later"))
        add(store, life, 1, row(qid, "a"))
        with store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, COMMIT)
            assert read(store, qid) == []
        decided(store, end_of(plain, COMMIT))
        assert sorted(read(store, qid)) == ["a", "later"]

    @pytest.mark.rule("R4")
    def test_the_halves_of_a_superseded_attempt_are_never_read(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        first = opened(store, group)
        add(store, first, 1, row(qid, "first"))
        with store.ledgers.open() as ledger:
            second = ledger.take_over(first.txid)
        add(store, second, 1, row(qid, "second"))
        settle(store, second, COMMIT)
        assert read(store, qid) == ["second"]

    @pytest.mark.rule("R4")
    def test_a_superseded_half_does_not_look_committed(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        first = opened(store, group)
        add(store, first, 1, row(qid, "first"))
        with store.ledgers.open() as ledger:
            second = ledger.take_over(first.txid)
        add(store, second, 1, row(qid, "second"))
        settle(store, second, COMMIT)
        assert [view.flag for view in store.halves.views(first.txid)].count("COMMIT") == 1

    @pytest.mark.rule("R4")
    def test_an_attempt_that_was_never_named_is_never_read(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "lost"), win=False)
        add(store, life, 2, row(qid, "kept"))
        settle(store, life, COMMIT)
        assert read(store, qid) == ["kept"]

    @pytest.mark.rule("R4")
    def test_a_part_counts_once_however_often_it_was_tried(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        for attempt in ("one", "two", "three"):
            with store.ledgers.open() as ledger:
                life = ledger.take_over(life.txid)
            add(store, life, 1, row(qid, attempt))
        settle(store, life, COMMIT)
        assert read(store, qid) == ["three"]

    @pytest.mark.rule("R3")
    @pytest.mark.parametrize("decision", BOTH)
    def test_a_half_is_not_added_after_the_decision(self, store: Store, decision: Decision) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        settle(store, life, decision)
        with pytest.raises(TransactionError), store.ledgers.open() as ledger:
            ledger.add(life, 1, [row(qid, "late")])
        assert not store.halves.views(life.txid)

    @pytest.mark.rule("R3")
    def test_a_decision_waits_for_the_writer_before_it(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            assert ledger.share(life.txid) == life
            decision = start(lambda: settle(store, life, COMMIT))
            assert is_held(decision)
            ledger.add(life, 1, [row(qid, "a")])
            ledger.win(life.txid, 1, life.owner)
        decision.result(PATIENCE)
        assert read(store, qid) == ["a"]

    @pytest.mark.rule("R3")
    def test_a_writer_behind_a_decision_sees_it(self, store: Store) -> None:
        life = opened(store, new_group(store))
        with store.ledgers.open() as ledger:
            assert ledger.lock(life.txid) == life
            seen = start(lambda: state_of(store, life.txid))
            assert is_held(seen)
            decide_life(ledger, life.txid, COMMIT)
        assert seen.result(PATIENCE) is TxState.COMMITTED

    @pytest.mark.req("RMQ-92")
    def test_a_rival_behind_a_decision_sees_it(self, store: Store) -> None:
        group = new_group(store)
        life = opened(store, group)
        with store.ledgers.open() as ledger:
            assert ledger.latest(group, "order-42") == life
            rival = start(lambda: settle(store, life, ROLLBACK))
            assert is_held(rival)
            decide_life(ledger, life.txid, COMMIT)
        with pytest.raises(IllegalTransition):
            rival.result(PATIENCE)
        assert state_of(store, life.txid) is TxState.COMMITTED

    @pytest.mark.rule("R16")
    def test_a_late_body_is_added_in_the_block_of_the_decision(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life = opened(store, group)
        add(store, life, 1, row(qid, "early"))
        slot = LateSlot(txid=life.txid, slot=1, qid=qid, key="k", tag="t", headers={"a": "b"}, ordering_key="o")
        with store.ledgers.open() as ledger:
            ledger.add(life, 1, [lay_out(slot, b"late")])
            decide_life(ledger, life.txid, COMMIT)
        assert read(store, qid) == ["early", "late"]
        batch = Batch(entries(store, qid)[1], topic="orders", queue=0, qid=qid, store=store.registry.identity, start=0)
        (late,) = batch.messages()
        assert (late.body, late.key, late.tag, late.ordering_key) == (b"late", "k", "t", "o")
        assert late.headers == {"a": "b"}


def state_of(store: Store, txid: int) -> TxState | None:
    """Return the state of a life as a writer finds it, behind whoever locks it now."""
    with store.ledgers.open() as ledger:
        life = ledger.share(txid)
    return life.state if life else None
