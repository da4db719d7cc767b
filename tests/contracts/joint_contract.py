"""What every store promises of words that stand together: of owners whose work is in the same branches."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.contracts.branch_contract import FIRST_OF, concluded, numbered, said, states, written
from tests.contracts.samples import COMMIT, ROLLBACK, new_queues, read, row
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.flows.branch import BranchState
from txsaga.flows.ports import DecisionRequest, Fence, Joint
from txsaga.store.store import Store


def three(store: Store) -> list[TxRecord]:
    """Take numbers for transactions of which nothing is written yet."""
    return [numbered(store) for _ in range(3)]


def words(store: Store, qid: int, lives: Sequence[TxRecord]) -> list[DecisionRequest]:
    """Say COMMIT of all; the first names the branches."""
    first, *others = lives
    carried = [said(life, COMMIT, [row(qid, f"of {at}")]) for at, life in enumerate(others, 2)]
    return [concluded(store, first, COMMIT, [row(qid, "of 1")], FIRST_OF), *carried]


def begun(store: Store, said: Sequence[DecisionRequest]) -> Joint:
    """Send words that stand together."""
    joint = store.branches.joint(said)
    joint.say()
    return joint


def stand(store: Store, lives: Sequence[TxRecord]) -> list[Decision | None]:
    """Return what stands of each."""
    known = store.branches.written([life.txid for life in lives])
    return [known[life.txid].decision if life.txid in known else None for life in lives]


class JointContract:
    """Words that stand together, as the port `Branches` promises them."""

    @pytest.mark.rule("R2")
    def test_they_stand_with_their_messages_and_the_first_ones_branches(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        assert begun(store, words(store, qid, lives)).commit()
        assert stand(store, lives) == [COMMIT] * 3
        assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]
        assert states(store, lives[0]) == [BranchState.PREPARED, BranchState.PREPARED]
        assert states(store, lives[1]) == states(store, lives[2]) == []

    def test_nobody_sees_them_before(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        joint = begun(store, words(store, qid, lives))
        assert stand(store, lives) == [None] * 3
        assert joint.commit()

    @pytest.mark.rule("R2", "R9")
    @pytest.mark.parametrize("fenced", [0, 1, 2])
    def test_where_one_is_fenced_nothing_of_any_is_written(self, store: Store, fenced: int) -> None:
        (qid,), lives = new_queues(store), three(store)
        said = words(store, qid, lives)
        assert written(store, Fence(lives[fenced].txid, "recovery", "its owner is gone")) is ROLLBACK
        assert not begun(store, said).commit()
        assert stand(store, lives) == [ROLLBACK if at == fenced else None for at in range(3)]
        assert read(store, qid) == []

    def test_where_a_number_is_nobodys_nothing_of_any_is_written(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        lives[1] = replace(lives[1], given=lives[2].given)
        assert not begun(store, words(store, qid, lives)).commit()
        assert stand(store, lives) == [None] * 3
        assert read(store, qid) == []

    def test_what_is_abandoned_was_never_said(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        joint = begun(store, words(store, qid, lives))
        joint.abandon()
        joint.abandon()
        assert (stand(store, lives), read(store, qid)) == ([None] * 3, [])
        assert written(store, concluded(store, lives[1], COMMIT, [row(qid, "alone")], FIRST_OF)) is COMMIT
        assert read(store, qid) == ["alone"]

    def test_what_is_recalled_is_heard_of_when_it_is_abandoned(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        joint = begun(store, words(store, qid, lives))
        joint.recall()
        joint.recall()
        joint.abandon()
        assert (stand(store, lives), read(store, qid)) == ([None] * 3, [])
        assert begun(store, words(store, qid, lives)).commit()
        assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]

    def test_what_was_not_sent_is_no_word(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        store.branches.joint(words(store, qid, lives)).abandon()
        assert stand(store, lives) == [None] * 3
        assert begun(store, words(store, qid, lives)).commit()
        assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]

    def test_said_again_they_stand_once(self, store: Store) -> None:
        (qid,), lives = new_queues(store), three(store)
        said = words(store, qid, lives)
        first = begun(store, said)
        assert first.commit()
        first.abandon()  # too late, and nobody's harm
        assert begun(store, said).commit()
        assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3"]

    def test_others_decide_while_they_are_under_way(self, store: Store) -> None:
        (qid,), lives, other = new_queues(store), three(store), numbered(store)
        joint = begun(store, words(store, qid, lives))
        assert written(store, concluded(store, other, COMMIT, [row(qid, "of another")], FIRST_OF)) is COMMIT
        assert joint.commit()
        assert sorted(read(store, qid)) == ["of 1", "of 2", "of 3", "of another"]
