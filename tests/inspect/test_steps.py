"""What is durable of a transaction becomes its steps: nothing is left out, nothing is guessed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from txsaga.checkback.questions import Remark
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import RegisteredResource
from txsaga.flows.branch import NOTHING_DONE, Branch, BranchState
from txsaga.flows.step import Step
from txsaga.inspect.drawing import picture
from txsaga.inspect.overview import Audited, Checks
from txsaga.inspect.timeline import lanes
from txsaga.inspect.timeline_steps import Looked, steps_of
from txsaga.inspect.trace import (
    ConsumedOffsets,
    KeyedRecord,
    RecordedDecision,
    SentMessages,
    Trace,
    TracePlace,
    WrittenTable,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = TracePlace("orders", 0)


def after(seconds: int) -> datetime:
    """Tell a moment after noon."""
    return NOON + timedelta(seconds=seconds)


def sent(attempt: int = 0, born: int = 0, *, counts: bool = True) -> SentMessages:
    """Make the halves of an attempt."""
    return SentMessages(1 if attempt else 0, attempt, ORDERS, 1, after(born), counts, False)


def life(state: TxState, owner: int = 1, touched: int = 9) -> KeyedRecord:
    """Make a keyed life."""
    return KeyedRecord("order-42", 1, owner, state, NOON, after(touched))


DECIDING = RegisteredResource(id=1, name="r1", database=UUID(int=1))
PLAIN = Trace(txid=7, group=1, sent=(sent(),))


def told(trace: Trace, looked: Looked | None = None) -> list[str]:
    """Return what the steps say."""
    return [step.what for step in steps_of(trace, looked)]


@pytest.mark.req("IBM-42")
def test_each_check_is_a_step_with_its_remark() -> None:
    remarks = (
        Remark(after(60), "anna-1", "UNKNOWN", "the checker said UNKNOWN"),
        Remark(after(120), "berta-2", "UNKNOWN", "TimeoutError"),
    )
    steps = steps_of(replace(PLAIN, listed=Checks(asked=2, due=after(180), parked=None, remarks=remarks)))
    found = [(step.what, step.at, step.who, step.why) for step in steps[1:3]]
    assert found == [("check: UNKNOWN", remark.at, remark.who, remark.why) for remark in remarks]
    assert (steps[3].what, steps[3].at) == ("next check", after(180))


def test_a_store_that_keeps_no_remarks_tells_how_often_it_asked() -> None:
    assert told(replace(PLAIN, listed=Checks(asked=1, due=after(9), parked=None)))[1:] == [
        "found undecided, 1 check since",
        "next check",
    ]


def test_parking_is_told_once_by_its_record_or_else_by_the_list() -> None:
    listed = Checks(asked=15, due=after(90), parked="out of checks")
    assert told(replace(PLAIN, listed=listed))[-1] == "parked"
    assert steps_of(replace(PLAIN, listed=listed))[-1].why == "out of checks"
    record = Audited(at=after(90), what="PARKED", who="check-back", why="out of checks")
    assert told(replace(PLAIN, listed=listed, audits=(record,))).count("parked") == 1


@pytest.mark.parametrize("what", ["ROLLBACK", "ROLLBACK BY HAND"])
def test_the_record_that_was_written_with_a_decision_is_the_decision(what: str) -> None:
    record = Audited(at=after(5), what=what, who="anna", why="asked")
    trace = replace(PLAIN, op=RecordedDecision(Decision.ROLLBACK, True, after(8)), audits=(record,))
    step = steps_of(trace)[-1]
    assert (len(told(trace)), step.at, step.who, step.why) == (2, after(5), "anna", "asked")


def test_what_is_recorded_after_the_decision_holds_nothing_any_more() -> None:
    record = Audited(at=after(9), what="LOOKED", who="anna", why="asked")
    trace = replace(PLAIN, op=RecordedDecision(Decision.ROLLBACK, False, after(8)), audits=(record,))
    assert told(trace) == ["1 message to orders/0", "ROLLBACK", "LOOKED"]
    assert lanes(steps_of(trace)) == {"MAIN": "x--"}


def test_an_open_transaction_has_no_end_and_tells_when_its_owner_was_seen() -> None:
    trace = Trace(txid=7, group=1, life=life(TxState.ACTIVE), sent=(sent(1, 1, counts=False),))
    assert told(trace) == ["opened under key order-42, attempt 1", "1 message to orders/0", "owner 1 was last seen"]


def test_a_transaction_that_was_rolled_back_before_its_end_was_never_closed() -> None:
    op = RecordedDecision(Decision.ROLLBACK, True, None)
    trace = Trace(txid=7, group=1, life=life(TxState.ROLLED_BACK), sent=(sent(1, 1, counts=False),), op=op)
    assert "sealed by its owner" not in told(trace)
    assert "sealed by its owner" in told(replace(trace, sent=(sent(1, 1),)))


@pytest.mark.rule("R4")
def test_an_attempt_that_does_not_count_says_so_before_and_after_the_end() -> None:
    attempts = (sent(1, 1, counts=False), sent(2, 5, counts=False))
    trace = Trace(txid=7, group=1, life=life(TxState.ACTIVE, owner=2), sent=attempts)
    assert told(trace)[1:4] == ["1 message to orders/0, superseded", "taken over by owner 2", "1 message to orders/0"]
    won = replace(trace, life=life(TxState.SEALED, owner=2), sent=(attempts[0], sent(2, 5)))
    assert told(won)[1:4] == told(trace)[1:4]


def test_consumed_offsets_are_told_while_they_are_bound() -> None:
    bound = (ConsumedOffsets("billing", "anna", TracePlace("paid", 1), 3, 5),)
    trace = Trace(txid=7, group=1, life=life(TxState.SEALED), bound=bound)
    step = steps_of(trace)[1]
    assert (step.what, step.who) == ("offsets 3 to 5 of paid/1 bound for group billing", "anna")


def branch(number: int, state: BranchState, why: str = "") -> Branch:
    """Make a branch of the resource with its number."""
    return Branch(7, number, 1, f"r{number}", state, after(8), why, recorded=number)


@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize("state", [BranchState.PREPARED, BranchState.COMMITTED])
def test_the_resource_whose_commit_decides_has_not_voted(state: BranchState, decision: Decision) -> None:
    branches = (branch(1, state), branch(2, state))
    trace = Trace(txid=7, group=1, resource=DECIDING, branches=branches, op=RecordedDecision(decision, False, None))
    assert "branch 1 voted" not in told(trace)
    voted = decision is Decision.COMMIT or state is BranchState.PREPARED
    assert ("branch 2 voted" in told(trace)) is voted


@pytest.mark.req("IBM-42")
def test_local_work_that_check_back_decided_is_told_with_what_it_found() -> None:
    found = Audited(at=after(5), what="ROLLBACK", who="check-back", why="the rollback barrier stands")
    trace = Trace(
        txid=7, group=1, resource=DECIDING, op=RecordedDecision(Decision.ROLLBACK, True, None), audits=(found,)
    )
    unseen = "by the decision; the evidence was not checked"
    assert [step.why for step in steps_of(trace) if step.lane == "r1"] == [found.why]
    other = replace(trace, audits=())
    assert [step.why for step in steps_of(other) if step.lane == "r1"] == [unseen]


@pytest.mark.req("BEYOND-5")
@pytest.mark.parametrize("decision", Decision)
def test_a_decision_by_an_operator_says_so_and_a_forced_one_does_not_say_what_became_of_the_work(
    decision: Decision,
) -> None:
    found = Audited(at=after(5), what=f"{decision.name} BY HAND", who="anna", why="asked the bank")
    trace = Trace(txid=7, group=1, resource=DECIDING, op=RecordedDecision(decision, True, None), audits=(found,))
    assert f"{decision.name} by hand" in told(trace)
    agreed = "the evidence did not contradict the operator"
    assert [step.why for step in steps_of(trace) if step.lane == "r1"] == [agreed]
    forced = replace(trace, audits=(replace(found, what=f"{decision.name} BY FORCE"),))
    assert f"{decision.name} by force" in told(forced)
    (work,) = [step for step in steps_of(forced) if step.lane == "r1"]
    assert (work.what, work.why) == ("local work", "the decision was forced; --evidence shows whether it committed")
    looked = Looked(committed=True, why="the evidence row exists")
    assert "local work committed" in [step.what for step in steps_of(forced, looked)]


@pytest.mark.rule("R4")
def test_rows_that_were_staged_for_a_table_are_steps() -> None:
    lost = WrittenTable(1, 1, "bank.ledger", "append", 1, False)
    won = lost._replace(attempt=2, name="public.orders", mode="replace", rows=3, counts=True)
    trace = Trace(txid=7, group=1, life=life(TxState.SEALED, owner=2), written=(lost, won))
    staged = [(step.what, step.who) for step in steps_of(trace) if "staged" in step.what]
    assert staged == [
        ("1 row staged for table bank.ledger: append, superseded", "owner 1"),
        ("3 rows staged for table public.orders: replace", "owner 2"),
    ]


@pytest.mark.parametrize("state", [BranchState.PREPARED, BranchState.ROLLED_BACK])
def test_a_step_that_had_not_ended_holds_as_long_as_its_branch(state: BranchState) -> None:
    step = Step(7, 1, 1, "pay", resource="r1", branch=1)
    trace = Trace(
        txid=7,
        group=1,
        life=life(TxState.ROLLED_BACK)._replace(flow=True),
        steps=(step,),
        branches=(branch(1, state),),
        op=RecordedDecision(Decision.ROLLBACK, True, None),
    )
    assert "step pay had not ended" in told(trace)
    assert ("=" in lanes(steps_of(trace))["r1"]) is (state is BranchState.PREPARED)


def test_a_branch_in_which_nothing_was_done_left_and_never_held_anything() -> None:
    branches = (branch(1, BranchState.COMMITTED, NOTHING_DONE), branch(2, BranchState.COMMITTED))
    trace = Trace(txid=7, group=1, branches=branches, op=RecordedDecision(Decision.COMMIT, False, after(8)))
    steps = steps_of(trace)
    assert [step.what for step in steps if step.lane == "r1"] == ["branch 1 named", "branch 1 left: nothing to commit"]
    assert [step.what for step in steps if step.lane == "r2"] == [
        "branch 2 named",
        "branch 2 voted",
        "branch 2 committed",
    ]
    assert set(lanes(steps)["r1"]) == {"-"}


@pytest.mark.rule("R4")
def test_rows_of_tables_are_visible_with_the_decision() -> None:
    rows = WrittenTable(1, 1, "bank.ledger", "append", 1, True)
    op = RecordedDecision(Decision.COMMIT, False, None)
    trace = Trace(txid=7, group=1, life=life(TxState.COMMITTED), written=(rows,), op=op)
    assert 'class="visible"' in picture(steps_of(trace))
    assert 'class="visible"' not in picture(steps_of(replace(trace, written=(rows._replace(counts=False),))))
    assert 'class="visible"' not in picture(steps_of(replace(trace, sent=(sent(1),))))
