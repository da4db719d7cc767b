"""Every pair of state and event follows its table or is refused; nothing else is possible."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.core.decision import Decision, LocalState
from txsaga.core.lifecycle import (
    MESSAGE,
    TRANSACTION,
    Lifecycle,
    MessageEvent,
    MessageState,
    TxEvent,
    TxState,
)
from txsaga.errors import IllegalTransition
from txsaga.flows.branch import BRANCH, HEURISTIC, OPEN, BranchEvent, BranchState

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)

TX_MOVES = {
    "active": {"seal": "sealed", "roll_back": "rolled_back"},
    "sealed": {"prepare": "prepared", "commit": "committed", "roll_back": "rolled_back", "park": "parked"},
    "prepared": {"commit": "committed", "roll_back": "rolled_back", "park": "parked"},
    "parked": {"resume": "sealed", "commit": "committed", "roll_back": "rolled_back"},
    "committed": {},
    "rolled_back": {},
}
FOUND = {
    "roll_back": "rolled_back",
    "find_committed": "heuristic_committed",
    "find_rolled_back": "heuristic_rolled_back",
    "find_mixed": "heuristic_mixed",
    "find_hazard": "heuristic_hazard",
}
BRANCH_MOVES = {
    "active": {"end": "ended", "prepare": "prepared", "leave": "committed", **FOUND},
    "ended": {"prepare": "prepared", **FOUND},
    "prepared": {"commit": "committed", **FOUND},
    "committed": {},
    "rolled_back": {},
    **{state.value: {"forget": "forgotten"} for state in HEURISTIC},
    "forgotten": {},
}
MESSAGE_MOVES = {
    "initialised": {"store": "pending"},
    "pending": {"commit": "committed", "roll_back": "rolled_back"},
    "committed": {"deliver": "consuming"},
    "consuming": {"give_back": "committed", "acknowledge": "consumed"},
    "consumed": {"expire": "deleted"},
    "rolled_back": {"expire": "deleted"},
    "deleted": {},
}


def assert_follows(
    table: Lifecycle[State, Event], moves: dict[str, dict[str, str]], state: State, event: Event
) -> None:
    """Check one pair against the moves written out above."""
    target = moves[state.value].get(event.value)
    if target is not None:
        assert table.after(state, event).value == target
        assert state in table.sources(event)
        return
    with pytest.raises(IllegalTransition, match=f"{event.value} is not possible in state {state.value}"):
        table.after(state, event)
    assert state not in table.sources(event)


@pytest.mark.req("RMQ-64")
@pytest.mark.parametrize(("state", "event"), list(product(MessageState, MessageEvent)))
def test_a_message_moves_by_its_table_only(state: MessageState, event: MessageEvent) -> None:
    assert_follows(MESSAGE, MESSAGE_MOVES, state, event)


@pytest.mark.req("IBM-10")
@pytest.mark.parametrize(("state", "event"), list(product(TxState, TxEvent)))
def test_a_transaction_moves_by_its_table_only(state: TxState, event: TxEvent) -> None:
    assert_follows(TRANSACTION, TX_MOVES, state, event)


@pytest.mark.req("WM-45")
@pytest.mark.parametrize(("state", "event"), list(product(BranchState, BranchEvent)))
def test_a_branch_moves_by_its_table_only(state: BranchState, event: BranchEvent) -> None:
    assert_follows(BRANCH, BRANCH_MOVES, state, event)


def test_a_branch_is_open_as_long_as_it_can_be_rolled_back() -> None:
    assert set(BRANCH.sources(BranchEvent.ROLL_BACK)) == OPEN


@pytest.mark.req("IBM-10", "RMQ-15")
def test_there_are_two_outcomes_and_unknown_is_none() -> None:
    assert {decision.name for decision in Decision} == {"COMMIT", "ROLLBACK"}
    assert TRANSACTION.final() == {TxState.COMMITTED, TxState.ROLLED_BACK}
    answers = {state: state.decision for state in LocalState}
    assert answers == {
        LocalState.COMMIT: Decision.COMMIT,
        LocalState.ROLLBACK: Decision.ROLLBACK,
        LocalState.UNKNOWN: None,
    }


@pytest.mark.req("RMQ-64")
def test_a_message_ends_deleted_and_nowhere_else() -> None:
    assert MESSAGE.final() == {MessageState.DELETED}


@pytest.mark.rule("R1")
def test_nobody_commits_what_its_owner_has_not_closed() -> None:
    assert TxState.ACTIVE not in TRANSACTION.sources(TxEvent.COMMIT)
    assert TxState.ACTIVE in TRANSACTION.sources(TxEvent.ROLL_BACK)


@pytest.mark.req("IBM-10")
@given(st.lists(st.sampled_from(TxEvent)))
def test_no_sequence_of_events_changes_an_outcome(events: list[TxEvent]) -> None:
    state, outcome = TxState.ACTIVE, None
    for event in events:
        try:
            state = TRANSACTION.after(state, event)
        except IllegalTransition:
            continue
        assert outcome is None
        outcome = state if state in TRANSACTION.final() else None


@pytest.mark.parametrize("event", TxEvent)
def test_an_event_leads_to_one_state_from_wherever_it_may_come(event: TxEvent) -> None:
    assert len({TRANSACTION.after(state, event) for state in TRANSACTION.sources(event)}) == 1


def test_every_state_is_reached() -> None:
    for first, table in (
        (TxState.ACTIVE, TX_MOVES),
        (BranchState.ACTIVE, BRANCH_MOVES),
        (MessageState.INITIALISED, MESSAGE_MOVES),
    ):
        reached, fresh = set[str](), {first.value}
        while fresh:
            reached |= fresh
            fresh = {target for state in fresh for target in table[state].values()} - reached
        assert reached == set(table)
