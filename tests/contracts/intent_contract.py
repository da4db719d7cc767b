"""What every store promises of bound offsets: one decision moves or frees them, and nothing else does."""

# The name of a test is a sentence.

from __future__ import annotations

import pytest

from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    bound,
    claimed,
    decide_life,
    new_group,
    new_queues,
    opened,
    position,
    settle,
)
from txsaga.core.decision import Decision
from txsaga.errors import LeaseLost, OutOfOrder, TransactionError
from txsaga.store.store import Store


class IntentContract:
    """Offsets consumed by a transaction, as the ports `Queues` and `Ledger` promise them."""

    @pytest.mark.rule("R11")
    @pytest.mark.parametrize(("decision", "stands"), [(COMMIT, 4), (ROLLBACK, 0)])
    def test_bound_offsets_move_by_the_decision_alone(self, store: Store, decision: Decision, stands: int) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = claimed(store, qid)
        intent = bound(store, life, claim, 4)
        assert store.queues.intent_on("billing", qid) == intent
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 2)
        store.queues.leave("billing", "anna", ["orders"])
        store.queues.renew("billing", "berta", ["orders"], LONG)
        assert store.queues.acquire("billing", "berta", qid) is None
        assert position(store, qid) == 0
        settle(store, life, decision)
        assert store.queues.intent_on("billing", qid) is None
        fresh = store.queues.acquire("billing", "berta", qid)
        assert fresh is not None
        assert fresh.offset == stands

    @pytest.mark.rule("R11")
    def test_a_transaction_binds_offsets_of_its_own_claim_only(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        stale = claimed(store, qid)
        store.queues.release("billing", "anna", qid)
        fresh = claimed(store, qid)
        with pytest.raises(LeaseLost):
            bound(store, life, stale, 4)
        with pytest.raises(LeaseLost):
            bound(store, life, fresh, 4, member="berta")
        assert store.queues.intent_on("billing", qid) is None
        assert store.queues.advance(fresh, "anna", 1).offset == 1

    @pytest.mark.rule("R3", "R11")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_a_decided_transaction_binds_nothing(self, store: Store, decision: Decision) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = claimed(store, qid)
        settle(store, life, decision)
        with pytest.raises(TransactionError):
            bound(store, life, claim, 4)
        assert store.queues.advance(claim, "anna", 1).offset == 1

    @pytest.mark.rule("R11")
    def test_a_queue_is_bound_to_one_transaction_at_a_time(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        first, second = opened(store, group, "first"), opened(store, group, "second")
        claim = claimed(store, qid)
        intent = bound(store, first, claim, 4)
        with pytest.raises(LeaseLost):
            bound(store, second, claim._replace(offset=4), 6)
        assert store.queues.intent_on("billing", qid) == intent

    @pytest.mark.rule("R11")
    def test_a_transaction_may_bind_the_offsets_that_follow(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = claimed(store, qid)
        bound(store, life, claim, 4)
        bound(store, life, claim._replace(offset=4), 6)
        with pytest.raises(LeaseLost):
            bound(store, life, claim._replace(offset=9), 10)
        settle(store, life, COMMIT)
        assert position(store, qid) == 6

    @pytest.mark.rule("R11", "R14")
    def test_what_is_bound_already_may_be_bound_again(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        life, rival = opened(store, group), opened(store, group, "rival")
        claim = store.queues.advance(claimed(store, qid), "anna", 2)
        for start, end in ((2, 4), (2, 4), (4, 6), (4, 6)):  # each twice, as after an answer that was lost
            bound(store, life, claim._replace(offset=start), end)
        for start, end in ((2, 4), (2, 6), (4, 6), (6, 7)):
            with pytest.raises(LeaseLost):
                bound(store, rival, claim._replace(offset=start), end)
        for start, end in ((2, 4), (1, 6), (4, 7), (5, 7)):
            with pytest.raises(LeaseLost):
                bound(store, life, claim._replace(offset=start), end)
        found = store.queues.intent_on("billing", qid)
        assert found is not None
        assert (found.txid, found.start, found.end) == (life.txid, 2, 6)
        settle(store, life, COMMIT)
        assert position(store, qid) == 6

    @pytest.mark.rule("R4", "R11")
    def test_a_take_over_frees_what_the_owner_before_had_bound(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = claimed(store, qid)
        bound(store, life, claim, 4)
        with store.ledgers.open() as ledger:
            ledger.take_over(life.txid)
        assert store.queues.intent_on("billing", qid) is None
        settle(store, life, COMMIT)
        assert position(store, qid) == 0
        assert store.queues.advance(claim, "anna", 1).offset == 1

    @pytest.mark.rule("R11")
    def test_offsets_are_bound_only_from_where_the_cursor_stands(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        stale = claimed(store, qid)
        fresh = store.queues.advance(stale, "anna", 2)
        for claim in (stale, fresh._replace(offset=3)):
            with pytest.raises(LeaseLost):
                bound(store, life, claim, 5)
        assert store.queues.intent_on("billing", qid) is None
        bound(store, life, fresh, 5)
        settle(store, life, COMMIT)
        assert position(store, qid) == 5

    @pytest.mark.rule("R11")
    def test_offsets_that_a_rollback_freed_are_not_skipped(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = claimed(store, qid)
        bound(store, life, claim, 4)
        settle(store, life, ROLLBACK)
        with pytest.raises(LeaseLost):  # who took them for consumed
            store.queues.advance(claim._replace(offset=4), "anna", 6)
        assert store.queues.advance(claim, "anna", 4).offset == 4

    @pytest.mark.rule("R11")
    def test_an_intent_ends_with_its_own_transaction_only(self, store: Store) -> None:
        one, two = new_queues(store, "orders")[0], new_queues(store, "news")[0]
        group = new_group(store)
        first, second = opened(store, group, "first"), opened(store, group, "second")
        intents = [bound(store, life, claimed(store, qid), 4) for life, qid in ((first, one), (second, two))]
        settle(store, first, COMMIT)
        assert store.queues.intent_on("billing", two) == intents[1]
        assert (position(store, one), position(store, two)) == (4, 0)

    @pytest.mark.rule("R11")
    @pytest.mark.parametrize("end", [0, -1])
    def test_offsets_are_bound_forwards_only(self, store: Store, end: int) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        claim = store.queues.advance(claimed(store, qid), "anna", 2)
        with pytest.raises(OutOfOrder, match="no message"):
            bound(store, life, claim, claim.offset + end)
        assert store.queues.intent_on("billing", qid) is None

    @pytest.mark.rule("R2")
    def test_a_decision_that_fails_moves_no_cursor(self, store: Store) -> None:
        (qid,), life = new_queues(store), opened(store, new_group(store))
        intent = bound(store, life, claimed(store, qid), 4)
        with pytest.raises(InterruptedError), store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, COMMIT)
            raise InterruptedError
        assert store.queues.intent_on("billing", qid) == intent
        assert position(store, qid) == 0
