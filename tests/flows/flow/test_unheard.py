"""What nobody heard of is found out before a flow is undone: commits of its lanes, its own ROLLBACK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import create_engine, text

from tests.flows.coordinated.bank import START
from tests.flows.flow.conftest import OpenDesks
from tests.flows.flow.desks import CHANGE, Desks
from tests.flows.flow.undone import broken, call, call_off, said, take_over, undone_by
from txsaga import Decision
from txsaga.checkback.by_hand import ByHand
from txsaga.errors import (
    DecidedOtherwise,
    OutcomeUnknown,
    RetryLater,
    StoreUnavailable,
    Unfinished,
)
from txsaga.flows import lane as lanes
from txsaga.flows import owner
from txsaga.flows.flow_end import FlowEnding
from txsaga.inspect.preview import preview_of
from txsaga.inspect.timeline_steps import steps_of

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _silence() -> None:
    said.clear()
    broken.clear()


def test_the_timeline_shows_why_an_end_could_not_reach_a_database(desks: Desks) -> None:
    txid = desks.begin("current", "mortgage")
    desks.pay(txid, "debit", -10, on="current")
    desks.pay(txid, "credit", 10, on="mortgage")
    engines = dict(desks.engines)
    dead = {**engines, "mortgage": create_engine("postgresql+psycopg://127.0.0.1:1/away?connect_timeout=2")}
    with pytest.raises(StoreUnavailable, match="'mortgage' does not answer"):
        replace(desks, engines=dead).end(txid)
    trace = desks.bank.broker.kernel.store.overview.trace(txid)
    assert trace is not None
    (step,) = [step for step in steps_of(trace) if step.what == "END FAILED"]
    assert step.why.startswith("resource 'mortgage' does not answer: ")
    desks.end(txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}


def test_rows_that_a_lane_has_committed_are_there_before_they_are_undone(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        undo: dict[str, Any] = {
            "compensate": "update account set balance = balance - 1 where id = :id",
            "input": {"id": 1},
        }
        with flow.step("audit", lane="mortgage", **undo) as connection:
            connection.execute(text(CHANGE), {"amount": 1, "id": 1})
        flow.lane("mortgage").commit()
        flow.roll_back()
    assert desks.bank.balances() == {"current": START, "mortgage": START}


@pytest.mark.parametrize("hold", ["prepared", "journal"])
def test_what_a_lane_committed_and_somebody_rolled_back_by_hand_is_not_undone(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        with flow.step("audit", lane="mortgage", hold=hold, **undone_by("audit")) as work:
            work.execute(*((text(CHANGE),) if hold == "prepared" else (CHANGE,)), {"amount": 1, "id": 1})
        participant = flow._kernel.participant("mortgage")[1]
        with patch.object(participant, "finish", side_effect=RetryLater("busy")), pytest.raises(Unfinished):
            flow.lane("mortgage").commit()
        (gid,) = desks.bank.prepared()
        with desks.engines["mortgage"].connect().execution_options(isolation_level="AUTOCOMMIT") as by_hand:
            by_hand.exec_driver_sql(f"ROLLBACK PREPARED '{gid}'")
        flow.roll_back()
    assert said == []
    assert desks.bank.balances() == {"current": START, "mortgage": START}


def test_what_a_lane_may_have_committed_unheard_is_not_told_to_be_rolled_back(open_desks: OpenDesks) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        with flow.step("audit", lane="mortgage", hold="journal", **undone_by("audit")) as work:
            work.execute(CHANGE, {"amount": 1, "id": 1}, rows=1)
        lane = flow.lane("mortgage")
        with (
            patch.object(lane, "_decided", side_effect=StoreUnavailable("away")),
            patch.object(lanes, "patiently", lambda step: step()),
            pytest.raises(StoreUnavailable),
        ):
            lane.commit()
    trace = desks.bank.broker.kernel.store.overview.trace(txid)
    assert trace is not None
    assert ("compensate, if it was done", "step 1 audit") in [
        (each.does, each.what) for each in preview_of(trace, undo=True)
    ]


def test_a_rollback_whose_answer_was_lost_is_not_taken_for_another_ones(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        real, lost = owner._written, list[bool]()

        def written(*given: Any) -> Any:  # whatever it is given
            standing = real(*given)
            if not lost:
                lost.append(True)
                take_over(desks)  # it takes so long that an engine goes on
                raise OutcomeUnknown("its answer was lost")
            return standing

        with patch.object(owner, "_written", written):
            flow.roll_back()
    assert lost and flow.decision is Decision.ROLLBACK
    assert said == ["book", "undo book"]


def test_a_flow_that_is_rolled_back_by_hand_while_it_ends_says_who_decided(desks: Desks) -> None:
    txid = desks.begin("current")
    by_hand = ByHand(desks.bank.broker.kernel)
    desks.pay(txid, "pay", -5, on="current")
    do_journals = FlowEnding.do_journals

    def overtaken(ending: FlowEnding) -> None:
        do_journals(ending)
        by_hand.decide(txid, Decision.ROLLBACK, who="anna", why="it was a mistake")

    with (
        patch.object(FlowEnding, "do_journals", overtaken),
        desks.joined(txid) as flow,
        pytest.raises(DecidedOtherwise),
    ):
        flow.end()
    assert flow.decision is Decision.ROLLBACK
    assert desks.bank.balances() == {"current": START, "mortgage": START}
