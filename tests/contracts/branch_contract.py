"""What every store promises of branches: named before their work, and again in the commit of the decision."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from tests.contracts.samples import COMMIT, ROLLBACK, new_group, new_queues, read, row
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import LateSlot, Row, TxRecord
from txsaga.errors import (
    EffectConflict,
    Superseded,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.flows.branch import NOTHING_DONE, BranchEvent, BranchState, Vote
from txsaga.flows.requests import Answer, Begin, BranchOutcome, BranchVote, Decide, Request
from txsaga.store.store import Store

YES, NOTHING = Vote.PREPARED, Vote.READ_ONLY
FIRST_OF = (BranchVote(1, 1, YES), BranchVote(2, 1, YES))


def resources(store: Store, *names: str) -> list[int]:
    """Register databases."""
    return [store.registry.resource(name, UUID(int=at)).id for at, name in enumerate(names, 1)]


def written(store: Store, call: Request) -> Answer:
    """Do one call; raise what it answers."""
    (answer,) = store.work.write([call])
    if isinstance(answer, TxSagaError):
        raise answer
    return answer


def begun(store: Store, *names: str) -> TxRecord:
    """Begin a transaction with branches in these resources."""
    life = written(store, Begin(new_group(store), resources(store, *names or ("current", "mortgage"))))
    assert isinstance(life, TxRecord)
    return life


def said(
    life: TxRecord,
    decision: Decision | None,
    rows: Sequence[Row] = (),
    votes: Sequence[BranchVote] = (),
    evidence: int | None = None,
) -> Decide:
    """Speak as the owner."""
    return Decide(life, decision, "owner 1", "the block ended", rows, votes, evidence)


def states(store: Store, life: TxRecord) -> list[BranchState]:
    """Return where its branches stand."""
    return [each.state for each in store.work.branches(life.txid)]


def noted(store: Store, life: TxRecord, number: int, event: BranchEvent) -> bool:
    """Note what became of a branch."""
    return bool(written(store, BranchOutcome(life.txid, number, life.owner, event)))


class BranchContract:
    """Branches, as `WorkStore` promises them."""

    def test_a_batch_of_nothing_is_answered_at_once(self, store: Store) -> None:
        assert list(store.work.write([])) == list(store.work.write([])) == []

    @pytest.mark.rule("R9")
    def test_a_transaction_begins_with_its_branches_named(self, store: Store) -> None:
        life = begun(store, "current", "mortgage")
        assert life.state is TxState.ACTIVE
        named = [(each.number, each.attempt, each.resource, each.state) for each in store.work.branches(life.txid)]
        assert named == [(1, 1, "current", BranchState.ACTIVE), (2, 1, "mortgage", BranchState.ACTIVE)]
        with store.ledgers.open() as ledger:
            assert ledger.lock(life.txid) == life

    def test_many_begin_at_once_each_with_its_own(self, store: Store) -> None:
        group, (one, two) = new_group(store), resources(store, "current", "mortgage")
        lives = store.work.write([Begin(group, [one]), Begin(group, []), Begin(group, [two, one], run="r")])
        assert all(isinstance(life, TxRecord) for life in lives)
        first, second, third = [life for life in lives if isinstance(life, TxRecord)]
        assert [len(store.work.branches(life.txid)) for life in (first, second, third)] == [1, 0, 2]
        assert [each.resource for each in store.work.branches(third.txid)] == ["mortgage", "current"]
        assert (first.run, third.run) == (None, "r")
        assert len({life.token for life in (first, second, third)}) == 3

    @pytest.mark.rule("R2")
    def test_the_decision_its_halves_and_its_votes_are_one(self, store: Store) -> None:
        (qid,), life = new_queues(store), begun(store)
        assert written(store, said(life, COMMIT, [row(qid, "a", "b")], FIRST_OF)) is COMMIT
        assert states(store, life) == [BranchState.PREPARED, BranchState.PREPARED]
        assert read(store, qid) == ["a", "b"]
        assert store.overview.transaction(life.txid).decision is COMMIT  # type: ignore[union-attr]

    def test_what_only_read_has_left_with_the_decision(self, store: Store) -> None:
        life = begun(store)
        written(store, said(life, COMMIT, votes=(BranchVote(1, 1, YES), BranchVote(2, 1, NOTHING))))
        assert states(store, life) == [BranchState.PREPARED, BranchState.COMMITTED]
        assert [branch.number for branch, _ in store.work.unfinished()] == [1]
        assert [branch.why for branch in store.work.branches(life.txid)] == ["", NOTHING_DONE]

    def test_what_only_read_is_told_from_what_is_committed(self, store: Store) -> None:
        votes = (BranchVote(1, 1, YES), BranchVote(2, 1, NOTHING))
        life, other = begun(store), begun(store)
        with store.ledgers.open() as ledger:
            ledger.record_votes(life.txid, votes)
        written(store, said(other, COMMIT, votes=votes))
        for txid in (life.txid, other.txid):
            assert [branch.why for branch in store.work.branches(txid)] == ["", NOTHING_DONE]

    def test_what_is_rolled_back_delivers_nothing_and_waits_for_its_resources(self, store: Store) -> None:
        (qid,), life = new_queues(store), begun(store)
        assert written(store, said(life, ROLLBACK)) is ROLLBACK
        assert read(store, qid) == []
        found = store.work.unfinished()
        assert [(branch.number, decision) for branch, decision in found] == [(1, ROLLBACK), (2, ROLLBACK)]

    def test_the_first_decision_stands(self, store: Store) -> None:
        life = begun(store)
        assert written(store, said(life, ROLLBACK)) is ROLLBACK
        assert written(store, said(life, COMMIT, votes=FIRST_OF)) is ROLLBACK
        assert states(store, life) == [BranchState.ACTIVE, BranchState.ACTIVE]

    def test_an_end_without_a_decision_leaves_it_to_the_evidence(self, store: Store) -> None:
        (qid,), life = new_queues(store), begun(store)
        (ledger_of,) = resources(store, "ledger")
        assert written(store, said(life, None, [row(qid, "a")], FIRST_OF, evidence=ledger_of)) is None
        with store.ledgers.open() as ledger:
            closed = ledger.lock(life.txid)
        assert closed is not None
        assert (closed.state, closed.evidence) == (TxState.SEALED, ledger_of)
        assert store.work.unfinished() == []
        assert (read(store, qid), states(store, life)) == ([], [BranchState.PREPARED, BranchState.PREPARED])
        assert written(store, said(life, None, [row(qid, "a")], FIRST_OF, evidence=ledger_of)) is None
        assert written(store, said(life, COMMIT)) is COMMIT
        assert read(store, qid) == ["a"]

    @pytest.mark.rule("R4")
    def test_whoever_was_superseded_decides_nothing(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            later = ledger.take_over(life.txid)
        with pytest.raises(Superseded):
            written(store, said(life, COMMIT, votes=FIRST_OF))
        with store.ledgers.open() as ledger:
            assert list(ledger.name(later, resources(store, "current", "audit"))) == [1, 3]
        assert written(store, said(later, COMMIT, votes=(BranchVote(1, 2, YES), BranchVote(3, 2, YES)))) is COMMIT
        with pytest.raises(Superseded):  # or it would tell its own branches to commit
            written(store, said(life, COMMIT, votes=FIRST_OF))
        named = {(each.number, each.attempt): each.state for each in store.work.branches(life.txid)}
        assert named[1, 1] is BranchState.ACTIVE  # found prepared, it is rolled back: the decision names the other
        assert named[1, 2] is BranchState.PREPARED

    @pytest.mark.rule("R4")
    @pytest.mark.parametrize("turn", [1, -1], ids=["superseded first", "owner first"])
    def test_of_two_owners_in_one_batch_the_later_decides(self, store: Store, turn: int) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            later = ledger.take_over(life.txid)
        both = [said(life, COMMIT, votes=FIRST_OF), said(later, ROLLBACK)]
        superseded, owner = store.work.write(both[::turn])[::turn]
        assert isinstance(superseded, Superseded)
        assert owner is ROLLBACK

    @pytest.mark.rule("R2")
    def test_what_something_is_bound_to_is_left_to_the_one_way_to_decide(self, store: Store) -> None:
        (qid,), life = new_queues(store), begun(store)
        with store.ledgers.open() as ledger:
            ledger.reserve(LateSlot(txid=life.txid, slot=1, qid=qid))
        with pytest.raises(EffectConflict):
            written(store, said(life, COMMIT, votes=FIRST_OF))
        assert states(store, life) == [BranchState.ACTIVE, BranchState.ACTIVE]

    def test_nobody_decides_what_is_not_there(self, store: Store) -> None:
        life = begun(store)
        other = replace(life, txid=life.txid + 1_000)
        with pytest.raises(UnknownTransaction):
            written(store, said(other, COMMIT))

    def test_a_store_that_rejects_transactions_begins_none(self, store: Store) -> None:
        group = new_group(store)
        store.registry.reject_transactions(True)
        with pytest.raises(TransactionsRejected):
            written(store, Begin(group, []))

    @pytest.mark.parametrize(
        ("event", "state"),
        [
            (BranchEvent.COMMIT, BranchState.COMMITTED),
            (BranchEvent.FIND_ROLLED_BACK, BranchState.HEURISTIC_ROLLED_BACK),
            (BranchEvent.FIND_HAZARD, BranchState.HEURISTIC_HAZARD),
        ],
    )
    def test_what_became_of_a_branch_is_noted_once(self, store: Store, event: BranchEvent, state: BranchState) -> None:
        life = begun(store)
        assert not noted(store, life, 1, event)  # before its decision nothing can have become of it
        written(store, said(life, COMMIT, votes=FIRST_OF))
        assert noted(store, life, 1, event)
        assert not noted(store, life, 1, BranchEvent.COMMIT)
        assert states(store, life) == [state, BranchState.PREPARED]
        assert [branch.number for branch, _ in store.work.unfinished()] == [2]

    @pytest.mark.req("WM-24", "WM-48")
    def test_only_what_stands_against_its_decision_can_be_forgotten(self, store: Store) -> None:
        life = begun(store)
        written(store, said(life, COMMIT, votes=FIRST_OF))
        assert not noted(store, life, 1, BranchEvent.FORGET)
        noted(store, life, 1, BranchEvent.FIND_ROLLED_BACK)
        assert noted(store, life, 1, BranchEvent.FORGET)
        assert states(store, life) == [BranchState.FORGOTTEN, BranchState.PREPARED]

    @pytest.mark.req("WM-48")
    def test_branches_are_listed_in_pages(self, store: Store) -> None:
        lives = [begun(store) for _ in range(3)]
        wanted = [(life.txid, number, 1) for life in lives for number in (1, 2)]
        found, after = list[tuple[int, int, int]](), (0, 0, 0)
        while page := store.work.branches_in([BranchState.ACTIVE], after=after, limit=4):
            found += [each[:3] for each in page]
            after = page[-1][:3]
        assert found == wanted
        assert store.work.branches_in([BranchState.PREPARED]) == []

    @pytest.mark.req("WM-24", "WM-48")
    def test_forgetting_and_who_did_it_are_one(self, store: Store) -> None:
        life = begun(store)
        written(store, said(life, COMMIT, votes=FIRST_OF))
        noted(store, life, 1, BranchEvent.FIND_ROLLED_BACK)
        with pytest.raises(ZeroDivisionError), store.ledgers.open() as ledger:
            assert ledger.forget(life.txid, 1, 1)
            raise ZeroDivisionError
        assert states(store, life) == [BranchState.HEURISTIC_ROLLED_BACK, BranchState.PREPARED]
        with store.ledgers.open() as ledger:
            assert ledger.forget(life.txid, 1, 1)
            assert not ledger.forget(life.txid, 1, 1)
            assert not ledger.forget(life.txid, 2, 1)
            assert not ledger.forget(life.txid, 1, 9)
        assert states(store, life) == [BranchState.FORGOTTEN, BranchState.PREPARED]

    def test_branches_of_one_resource_are_listed(self, store: Store) -> None:
        life = begun(store, "current", "mortgage")
        (found,) = store.work.branches_in([BranchState.ACTIVE], resource="mortgage")
        assert found[:4] == (life.txid, 2, 1, "mortgage")
        assert store.work.branches_in([BranchState.ACTIVE], resource="audit") == []

    def test_what_is_unfinished_is_counted_by_resource(self, store: Store) -> None:
        for id in resources(store, "current", "mortgage", "quiet"):
            store.registry.enlist(id)
        begun(store)
        lives = [begun(store) for _ in range(2)]
        for life in lives:
            written(store, said(life, COMMIT, votes=FIRST_OF))
        noted(store, lives[0], 1, BranchEvent.FIND_HAZARD)
        noted(store, lives[1], 1, BranchEvent.COMMIT)
        current, mortgage, quiet = store.overview.branches()
        assert (current.resource, current.undecided, current.waiting, current.oldest) == ("current", 1, 0, None)
        assert current.heuristics == 1
        assert (mortgage.resource, mortgage.undecided, mortgage.waiting, mortgage.heuristics) == ("mortgage", 1, 2, 0)
        assert mortgage.oldest is not None
        assert timedelta(0) <= mortgage.oldest < timedelta(minutes=10)
        assert (quiet.undecided, quiet.waiting, quiet.oldest, quiet.heuristics) == (0, 0, None, 0)

    @pytest.mark.req("IBM-41")
    def test_a_transaction_is_traced_with_its_branches(self, store: Store) -> None:
        life = begun(store)
        trace = store.overview.trace(life.txid)
        assert trace is not None
        assert list(trace.branches) == list(store.work.branches(life.txid))

    @pytest.mark.rule("R14")
    def test_a_decision_that_is_repeated_changes_nothing(self, store: Store) -> None:
        (qid,), life = new_queues(store), begun(store)
        word = said(life, COMMIT, [row(qid, "a", "b")], FIRST_OF)
        for _ in range(2):  # the first answer was lost
            assert written(store, word) is COMMIT
        assert states(store, life) == [BranchState.PREPARED, BranchState.PREPARED]
        assert read(store, qid) == ["a", "b"]
        assert [(each.what, each.who, each.why) for each in store.overview.history(life.txid)] == [
            ("COMMIT", "owner 1", "the block ended")
        ]

    def test_a_branch_without_a_vote_is_not_elected(self, store: Store) -> None:
        life = begun(store)
        written(store, said(life, COMMIT, votes=FIRST_OF[:1]))
        assert states(store, life) == [BranchState.PREPARED, BranchState.ACTIVE]
        assert [branch.number for branch, _ in store.work.unfinished()] == [1, 2]

    @pytest.mark.rule("R14")
    def test_what_began_before_transactions_were_rejected_is_decided(self, store: Store) -> None:
        life = begun(store)
        store.registry.reject_transactions(True)
        assert written(store, said(life, COMMIT, votes=FIRST_OF)) is COMMIT

    def test_many_are_decided_at_once_each_with_its_own(self, store: Store) -> None:
        (qid,) = new_queues(store)
        lives = [begun(store) for _ in range(3)]
        words = [
            said(lives[0], COMMIT, [row(qid, "a")], FIRST_OF),
            said(lives[1], ROLLBACK),
            said(lives[2], COMMIT, [row(qid, "b")], (BranchVote(1, 1, YES), BranchVote(2, 1, NOTHING))),
        ]
        assert list(store.work.write(words)) == [COMMIT, ROLLBACK, COMMIT]
        assert sorted(read(store, qid)) == ["a", "b"]
        assert [states(store, life)[1] for life in lives] == [
            BranchState.PREPARED,
            BranchState.ACTIVE,
            BranchState.COMMITTED,
        ]
