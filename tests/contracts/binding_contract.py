"""What every store promises of messages bound to a transaction: its decision ends the claim, and nothing else does."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.claiming import (
    HOUR,
    LAPSE,
    MOMENT,
    acked,
    buried,
    crowded,
    due,
    filled,
    offsets,
    one_due,
    take,
    taken,
)
from tests.contracts.samples import COMMIT, ROLLBACK, decide_life, new_group, opened, settle
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.consume.claim import Claim
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.errors import ClaimLost, TransactionError
from txsaga.store.store import Store

SOON = timedelta(seconds=MOMENT)
REST = timedelta(seconds=3)
"""Longer than a busy machine takes to look."""


class BindingContract:
    """Messages consumed by a transaction, as the ports `Claims` and `Ledger` promise them."""

    @pytest.mark.rule("R11")
    def test_a_commit_takes_bound_messages_off_the_group(self, store: Store, later: Later) -> None:
        qid, life = filled(store, *"abc"), opened(store, new_group(store))
        claim = taken(store, qid)
        for offset in (0, 2):
            bind(store, life, claim.only(offset))
        settle(store, life, COMMIT)
        later(LAPSE)
        assert (due(store, qid), take(store, qid)) == ([], None)
        assert acked(store, claim.only(0), claim.only(2), claim.only(1)) == [False, False, True]

    @pytest.mark.rule("R11")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_messages_that_were_taken_together_are_bound_together(
        self, store: Store, later: Later, decision: Decision
    ) -> None:
        qid, life = filled(store, *"abcd"), opened(store, new_group(store))
        claim = taken(store, qid)
        bind(store, life, claim.only(0, 2, 3))
        settle(store, life, decision)
        assert acked(store, claim.only(1)) == [True]
        later(LAPSE)
        again = [offsets(*due(store, qid)) for _ in range(4)]  # what failed comes one by one
        assert sorted(again) == ([[]] * 4 if decision is COMMIT else [[], [0], [2], [3]])

    @pytest.mark.rule("R11")
    def test_of_messages_that_are_bound_together_none_is_where_one_is_lost(self, store: Store) -> None:
        qid, life = filled(store, *"abc"), opened(store, new_group(store))
        claim = taken(store, qid)
        assert acked(store, claim.only(1)) == [True]
        with pytest.raises(ClaimLost):
            bind(store, life, claim.only(0, 1, 2))
        assert acked(store, claim.only(0), claim.only(2)) == [True, True]

    @pytest.mark.req("IBM-07", "IBM-61")
    @pytest.mark.rule("R11")
    def test_a_rollback_lets_bound_messages_come_again_after_their_rest(self, store: Store, later: Later) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        claim = taken(store, qid)
        bind(store, life, claim.only(0), retry=REST)
        settle(store, life, ROLLBACK)
        assert due(store, qid) == []
        later(1.2 * REST.total_seconds())
        again = one_due(store, qid)
        assert (again.base, again.attempts) == (0, 2)
        buried(store, again, "enough")
        (letter,) = store.dead_letters.list(None, 1)
        assert [(entry["member"], entry["attempts"]) for entry in letter.history] == [("anna", 1), ("berta", 2)]
        assert letter.history[0]["cause"] == f"transaction {life.txid} was rolled back: test"  # why, as it was decided

    @pytest.mark.rule("R4", "R11")
    def test_a_take_over_lets_what_the_owner_before_had_bound_come_again(self, store: Store, later: Later) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        claim = taken(store, qid)
        bind(store, life, claim.only(0))
        with store.ledgers.open() as ledger:
            life = ledger.take_over(life.txid)
        bind(store, life, claim.only(1))
        later(LAPSE)
        again = one_due(store, qid)
        assert (again.base, again.attempts) == (0, 2)
        settle(store, life, COMMIT)
        buried(store, again)
        assert due(store, qid) == []
        (letter,) = store.dead_letters.list(None, 1)
        assert letter.history[0]["cause"] == f"transaction {life.txid} was rolled back: another owner took it over"

    @pytest.mark.rule("R11")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_a_bound_message_is_no_more_its_members(self, store: Store, decision: Decision) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        for claim in (taken(store, qid, limit=1), taken(store, qid).only(1)):
            bind(store, life, claim, retry=timedelta(seconds=HOUR))
            assert acked(store, claim) == [False]
            for call in (
                lambda claim=claim: store.claims.extend(claim, SOON),
                lambda claim=claim: store.claims.put_back(claim, SOON, "broken"),
                lambda claim=claim: store.claims.drop(claim),
                lambda claim=claim: buried(store, claim),
                lambda claim=claim: bind(store, life, claim),
            ):
                with pytest.raises(ClaimLost):
                    call()
            store.claims.give_back(claim)
        settle(store, life, decision)
        assert (due(store, qid), store.dead_letters.list(None, 1)) == ([], [])

    @pytest.mark.rule("R11")
    def test_a_bound_message_waits_for_its_decision_for_ever(self, store: Store, later: Later) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        bind(store, life, taken(store, qid, limit=1, seconds=IN_TIME))
        bind(store, life, taken(store, qid, seconds=IN_TIME))
        later(OVER)
        assert due(store, qid) == []
        settle(store, life, ROLLBACK)
        later(LAPSE)
        assert offsets(one_due(store, qid), one_due(store, qid)) == [0, 1]

    def test_a_message_that_was_lost_is_not_bound(self, store: Store, later: Later) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        over, done = taken(store, qid, limit=1, seconds=MOMENT), taken(store, qid)
        assert acked(store, done) == [True]
        later(LAPSE)
        for claim in (over, done):
            with pytest.raises(ClaimLost):
                bind(store, life, claim)
        fresh = one_due(store, qid)
        settle(store, life, ROLLBACK)
        assert acked(store, fresh) == [True]

    @pytest.mark.rule("R3", "R11")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_a_decided_transaction_binds_no_message(self, store: Store, decision: Decision) -> None:
        qid, life = filled(store, "a"), opened(store, new_group(store))
        claim = taken(store, qid)
        settle(store, life, decision)
        with pytest.raises(TransactionError):
            bind(store, life, claim)
        assert acked(store, claim) == [True]

    @pytest.mark.rule("R2")
    def test_a_block_that_fails_binds_and_ends_nothing(self, store: Store) -> None:
        qid, life = filled(store, *"ab"), opened(store, new_group(store))
        claim = taken(store, qid)
        bind(store, life, claim.only(0))
        with pytest.raises(InterruptedError), store.ledgers.open() as ledger:
            ledger.bind(life.txid, claim.only(1), SOON)
            decide_life(ledger, life.txid, ROLLBACK)
            raise InterruptedError
        assert acked(store, claim.only(0), claim.only(1)) == [False, True]
        assert due(store, qid) == []
        settle(store, life, COMMIT)
        assert due(store, qid) == []

    @pytest.mark.rule("R11")
    def test_a_decision_ends_the_claims_of_its_own_transaction_only(self, store: Store, later: Later) -> None:
        qid, group = filled(store, *"ab"), new_group(store)
        first, second = opened(store, group, "first"), opened(store, group, "second")
        claim = taken(store, qid)
        for life, offset in ((first, 0), (second, 1)):
            bind(store, life, claim.only(offset))
        settle(store, first, ROLLBACK)
        later(LAPSE)
        assert offsets(one_due(store, qid)) == [0]
        settle(store, second, ROLLBACK)
        later(LAPSE)
        assert offsets(one_due(store, qid)) == [1]

    @pytest.mark.rule("R11")
    def test_of_rivals_one_binds(self, store: Store) -> None:
        qid, group = filled(store, *"abc"), new_group(store)
        lives = [opened(store, group, f"key-{n}") for n in range(4)]
        claim = taken(store, qid)

        def binds(life: TxRecord) -> bool:
            try:
                bind(store, life, claim.only(1))
            except ClaimLost:
                return False
            return True

        def acks() -> bool:
            return acked(store, claim.only(1)) == [True]

        rivals = [*(lambda life=life: binds(life) for life in lives), *[acks] * 4]
        assert sorted(crowded(*rivals)) == [False] * 7 + [True]
        assert acked(store, claim.only(0), claim.only(2)) == [True, True]
        for life in lives:
            settle(store, life, COMMIT)
        assert due(store, qid) == []


def bind(store: Store, life: TxRecord, claim: Claim, *, retry: timedelta = SOON) -> None:
    """Bind the one message of a claim to a keyed transaction."""
    with store.ledgers.open() as ledger:
        ledger.bind(life.txid, claim, retry)
