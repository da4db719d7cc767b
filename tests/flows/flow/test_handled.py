"""A step whose process died in it: once its failure was dealt with, the flow commits without it."""

from __future__ import annotations

import pytest

from tests.flows.coordinated.bank import START
from tests.flows.flow.conftest import OpenDesks
from tests.flows.flow.desks import BOTH, Desks, pay_by_update
from txsaga.errors import DecidedOtherwise, StepsOpen
from txsaga.flows.branch import BranchState
from txsaga.flows.flow import Flow
from txsaga.flows.flow_step import FlowStepWork
from txsaga.flows.step import StepState

pytestmark = pytest.mark.postgres


def begun(flow: Flow, step: str, **place: str) -> FlowStepWork:
    """Enter a step."""
    work = flow.step(step, **place)  # type: ignore[arg-type]
    assert isinstance(work, FlowStepWork)
    work.__enter__()
    return work


def killed_in(desks: Desks, txid: int, step: str, **place: str) -> None:
    """Leave a step as a process does that was killed in it; the server rolls back what was not prepared."""
    with desks.joined(txid) as flow:
        work = begun(flow, step, **place)
        if work._session is not None:
            pay_by_update(work._session.handle, -50)
            work._session.leave()


def states(desks: Desks, txid: int) -> dict[str, StepState]:
    """Return where the last attempts stand."""
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        return {each.name: each.state for each in ledger.flows.steps(txid)}


@pytest.mark.req("IBM-64")
@pytest.mark.parametrize("hold", ["prepared", "journal"])
def test_a_flow_commits_without_a_step_that_a_process_died_in(desks: Desks, hold: str) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "credit", 10, on="mortgage")
    killed_in(desks, txid, "debit", on="current", hold=hold)
    with desks.joined(txid) as flow, pytest.raises(StepsOpen):
        flow.end()
    with desks.joined(txid) as flow:
        flow.end(handled=["debit"])
    assert desks.bank.balances() == {"current": START, "mortgage": START + 10}
    assert states(desks, txid) == {"credit": StepState.DONE, "debit": StepState.FAILED}
    desks.bank.recover()
    assert desks.bank.prepared() == []
    assert set(desks.bank.states(txid).values()) <= {BranchState.COMMITTED, BranchState.ROLLED_BACK}


@pytest.mark.rule("R4", "R9")
def test_what_a_dead_process_prepared_is_rolled_back_and_keeps_no_journal_waiting(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.process() as broker, broker.flow(txid) as flow:
        dead = begun(flow, "debit", on="current")
        assert dead._session is not None
        pay_by_update(dead._session.handle, -50)
        dead._session.prepare()()  # and is killed before it could say so
        dead._session.leave()
    assert len(desks.bank.prepared()) == 1
    desks.write(txid, "credit", 10, on="current")
    with desks.joined(txid) as flow:
        flow.end(handled=["debit"])
    assert desks.bank.balances()["current"] == START + 10
    assert desks.bank.prepared() == []


@pytest.mark.rule("R3", "R4")
def test_a_process_that_was_only_slow_adds_nothing_any_more(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as slow:
        with pytest.raises(DecidedOtherwise), slow.step("debit", on="current") as connection:
            pay_by_update(connection, -50)
            with desks.joined(txid) as flow:
                flow.end(handled=["debit"])
    desks.bank.recover()
    assert desks.bank.balances()["current"] == START
    assert desks.bank.prepared() == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_process_that_died_in_a_lane_that_can_not_vote_keeps_no_flow_open(
    open_desks: OpenDesks, *, commits: bool
) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    killed_in(desks, txid, "audit", lane="mortgage")
    with desks.joined(txid) as flow:
        if commits:
            flow.end(handled=["audit"])
        else:
            flow.roll_back()
    assert desks.bank.balances() == {"current": START - 10 * commits, "mortgage": START}
