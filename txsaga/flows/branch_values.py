"""
Calls about branches as parameters of their statements, and what it means to the caller if nothing changed.

Nothing here queries the store. Each array is one parameter in `sql/branch.sql`, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, auto
from typing import Any

from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import DecidedOtherwise, EffectConflict, Superseded, TxSagaError, UnknownTransaction
from txsaga.flows.branch import BRANCH, BranchState
from txsaga.flows.branch_statements import ENDED, OPENED
from txsaga.flows.ports import VOTED, Answer, BeginBranches, BranchOutcome, Call, DecisionRequest, Fence
from txsaga.store.values import Value, bytea_array, int4_array, int8_array, text_array

STATES = {event: state for (_, event), state in BRANCH.moves.items()}
Conclusion = BeginBranches | DecisionRequest
"""A request about a transaction without a row."""
Values = list[Value | None]
FENCED = 0
"""The producer group of a transaction of which recovery knows only the number."""
FENCE_STANDS = (int(Decision.ROLLBACK), 1, TxState.ROLLED_BACK.value, FENCED)
"""The stored values if a fence was first: decision, owner, state, group."""


_NO_ROWS = (int8_array([]), int4_array([]), int4_array([]), int4_array([]), bytea_array([]))


class Sort(IntEnum):
    """The statement that writes a call; a number, since it is looked up for each."""

    BEGIN = auto()
    WORD = auto()
    CONCLUSION = auto()
    FENCE = auto()
    NOTE = auto()


def sort_of(call: Call) -> Sort:
    """Return the statement that writes a call."""
    match call:
        case BeginBranches(life=None):
            return Sort.BEGIN
        case BeginBranches() | DecisionRequest(resources=[_, *_]):
            return Sort.CONCLUSION
        case DecisionRequest():
            return Sort.WORD
        case Fence():
            return Sort.FENCE
        case BranchOutcome():
            return Sort.NOTE


def life_in(word: Conclusion) -> TxRecord:
    """Return the record that a request is about."""
    assert word.life is not None
    return word.life


def life_of(group: int, txid: int, token: bytes, *, run: str | None = None, given: bytes = b"") -> TxRecord:
    """Return a new record without a key."""
    state = TxState.ACTIVE
    return TxRecord(txid=txid, group=group, token=token, key=None, epoch=1, owner=1, state=state, run=run, given=given)


def begins(calls: Sequence[BeginBranches]) -> Values:
    """Return parameters of begins."""
    named = [(at, n, it) for at, begin in enumerate(calls, 1) for n, it in enumerate(begin.resources, 1)]
    return [
        int4_array([begin.group for begin in calls]),
        text_array([begin.run or "" for begin in calls]),
        *(int4_array([each[column] for each in named]) for column in range(3)),
    ]


def words(calls: Sequence[DecisionRequest]) -> Values:
    """Return parameters of decisions."""
    votes = [(word.life.txid, vote) for word in calls for vote in word.votes]
    return [
        int8_array([word.life.txid for word in calls]),
        int4_array([word.life.owner for word in calls]),
        int4_array([int(word.decision or ENDED) for word in calls]),
        text_array([word.who for word in calls]),
        text_array([kept(word.why) for word in calls]),
        int4_array([word.evidence or 0 for word in calls]),
        *_rows(calls),
        int8_array([txid for txid, _ in votes]),
        int4_array([vote.number for _, vote in votes]),
        int4_array([vote.attempt for _, vote in votes]),
        text_array([VOTED[vote.vote].value for _, vote in votes]),
    ]


def conclusions(calls: Sequence[Conclusion]) -> Values:
    """Return parameters of requests about transactions without a row."""
    lives, said = [life_in(word) for word in calls], [word for word in calls if isinstance(word, DecisionRequest)]
    branches = [(life_in(word).txid, *branch) for word in calls for branch in _branches(word)]
    return [
        int8_array([life.txid for life in lives]),
        int4_array([life.group for life in lives]),
        bytea_array([life.given for life in lives]),
        int4_array([int(word.decision or ENDED) if isinstance(word, DecisionRequest) else OPENED for word in calls]),
        text_array([word.who if isinstance(word, DecisionRequest) else "" for word in calls]),
        text_array([kept(word.why) if isinstance(word, DecisionRequest) else "" for word in calls]),
        int4_array([word.evidence or 0 if isinstance(word, DecisionRequest) else 0 for word in calls]),
        *_rows(said),
        int8_array([branch[0] for branch in branches]),
        int4_array([branch[1] for branch in branches]),
        int4_array([branch[2] for branch in branches]),
        text_array([branch[3].value for branch in branches]),
    ]


def fences(calls: Sequence[Fence]) -> Values:
    """Return parameters of fences."""
    return [
        int8_array([fence.txid for fence in calls]),
        text_array([fence.who for fence in calls]),
        text_array([kept(fence.why) for fence in calls]),
    ]


def notes(calls: Sequence[BranchOutcome]) -> Values:
    """Return parameters of branch outcomes."""
    return [
        int8_array([note.txid for note in calls]),
        int4_array([note.number for note in calls]),
        int4_array([note.attempt for note in calls]),
        text_array([STATES[note.event].value for note in calls]),
        text_array([kept(note.why) for note in calls]),
    ]


def standing_of(word: Conclusion, stands: tuple[Any, ...] | None) -> Answer | TxSagaError:
    """Return the decision, or why the owner's request changed nothing."""
    life = life_in(word)
    decision, owner, state, group = stands or (None, None, None, None)
    if group not in (life.group, FENCED):
        return UnknownTransaction(f"transaction {life.txid} is not in this store")
    if owner != life.owner:  # any decision names another owner's branches
        return Superseded(life.txid)
    if isinstance(word, BeginBranches):
        return life if decision is None else DecidedOtherwise(life.txid, Decision(decision).name)
    if decision is not None:
        return Decision(decision)
    if word.decision is None and state == TxState.ENDED:
        return None  # already sealed: the answer was lost
    return EffectConflict(f"transaction {life.txid} has something bound to it that is decided with it")


def _rows(calls: Sequence[DecisionRequest]) -> Values:
    rows = [(word.life.txid, row) for word in calls for row in word.rows]
    if not rows:
        return list(_NO_ROWS)
    return [
        int8_array([txid for txid, _ in rows]),
        int4_array([row.qid for _, row in rows]),
        int4_array([row.chunk for _, row in rows]),
        int4_array([row.count for _, row in rows]),
        bytea_array([row.body for _, row in rows]),
    ]


def _branches(word: Conclusion) -> list[tuple[int, int, BranchState]]:
    """Return its branches; one without a vote is rolled back, even if it holds work."""
    votes = {vote.number: VOTED[vote.vote] for vote in word.votes} if isinstance(word, DecisionRequest) else {}
    return [(number, it, votes.get(number, BranchState.ACTIVE)) for number, it in enumerate(word.resources, 1)]
