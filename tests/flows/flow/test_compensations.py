"""What undoes the steps of a flow: written down before they run, done once ROLLBACK stands, by whoever is there."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from tests.flows.coordinated.bank import START
from tests.flows.flow.desks import BOTH, CHANGE, Desks
from tests.flows.flow.undone import (
    broken,
    call,
    call_off,
    change,
    correct,
    fail,
    give_back,
    journal,
    said,
    states,
    take_over,
    undone_by,
)
from txsaga import Decision, Undo
from txsaga.errors import (
    AlreadyCommitted,
    CompensationFailed,
    ConfigError,
    NotCompensated,
    ResourceUnknown,
)
from txsaga.flows.by_hand import SagasByHand
from txsaga.flows.step import Left, StepState
from txsaga.flows.step_attempts import Attempts
from txsaga.inspect.preview import preview_of

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _silence() -> None:
    said.clear()
    broken.clear()


@pytest.mark.rule("R6")
@pytest.mark.req("CARD-06")
def test_steps_that_committed_by_themselves_are_undone_in_the_reverse_order_of_their_start(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
    with desks.joined(txid) as flow:
        journal(flow, "mortgage", "audit")
    with desks.joined(txid) as flow, flow.step("phone", **undone_by("phone")):
        said.append("phone")
    with desks.joined(txid) as flow:
        flow.roll_back("the customer left")
    assert said == ["book", "phone", "undo phone", "undo audit", "undo book"]
    assert states(desks, txid) == ["compensated"] * 3
    assert desks.bank.broker.kernel.store.work.sagas() == []


def test_what_is_held_is_rolled_back_by_its_resource_and_not_compensated(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow, flow.step("debit", on="current", **undone_by("debit")) as connection:
        connection.execute(text(CHANGE), {"amount": -10, "id": 1})
    with desks.joined(txid) as flow, flow.step("later", on="mortgage", hold="journal", **undone_by("later")) as it:
        it.execute(CHANGE, {"amount": 10, "id": 1})
    with desks.joined(txid) as flow, flow.step("open", lane="mortgage", **undone_by("open")) as connection:
        connection.execute(text(CHANGE), {"amount": 1, "id": 1})
    with desks.joined(txid) as flow:
        flow.roll_back()
    assert said == []
    assert states(desks, txid) == ["compensated"] * 3
    steps = desks.bank.broker.kernel.store.work.steps(txid)
    assert {(step.left, step.error) for step in steps} == {(Left.NOTHING, "it left nothing")}
    assert desks.bank.balances() == {"current": START, "mortgage": START}


def test_a_lane_that_was_rolled_back_by_itself_is_not_compensated(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        with flow.step("audit", lane="mortgage", **undone_by("audit")) as connection:
            connection.execute(text(CHANGE), {"amount": 1, "id": 1})
        flow.lane("mortgage").roll_back()
        flow.roll_back()
    assert said == []


def test_the_steps_of_a_flow_that_commits_stay(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        journal(flow, "mortgage", "audit")
        assert [view.txid for view in desks.bank.broker.kernel.store.work.sagas()] == [txid]
        flow.end()
    assert said == ["book"]
    assert states(desks, txid) == ["done", "done"]
    assert desks.bank.broker.kernel.store.work.sagas() == []
    assert take_over(desks) == 0


def test_a_flow_that_can_not_commit_undoes_its_steps_before_the_vote_comes_out(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    desks.write(txid, "debit", -10, account=7, on="current")  # there is no such account
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        with pytest.raises(Exception, match="row"):
            flow.end()
        assert flow.decision is Decision.ROLLBACK
    assert said == ["book", "undo book"]


@pytest.mark.rule("R6")
def test_a_flow_that_nobody_is_heard_of_is_undone_by_an_engine(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        journal(flow, "mortgage", "audit")
    assert take_over(desks) == 0  # it is open, and waits for its next process
    desks.bank.recover()
    assert said == ["book"]
    assert take_over(desks) == 1
    assert said == ["book", "undo audit", "undo book"]
    assert take_over(desks) == 0


@pytest.mark.req("IBM-64")
def test_a_step_that_died_is_undone_where_nobody_knows_whether_it_ran(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.step("phone", **undone_by("phone")).__enter__()
    desks.stored.let_leases_pass(31.0)
    with desks.joined(txid) as flow:
        with pytest.raises(ValueError), flow.step("mail", **undone_by("mail")):
            raise ValueError
        flow.roll_back()
    assert said == ["undo mail", "undo phone"]


def test_a_step_that_is_tried_again_is_undone_once_with_what_its_last_attempt_said(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        with pytest.raises(ValueError):
            flow.call("book", fail, input={"what": "first"}, compensate=call_off)
        flow.call("book", call, input={"what": "second"}, compensate=call_off)
        flow.roll_back()
    assert said == ["first", "second", "undo second"]


@pytest.mark.req("IBM-64")
def test_a_call_that_was_done_gives_what_it_gave_and_is_not_done_again(desks: Desks) -> None:
    txid = desks.begin("current")
    for _ in range(2):
        with desks.joined(txid) as flow:
            assert flow.call("book", call, input={"what": "book"}) == "reference of book"
            assert flow.call("change", change, on="mortgage", input={"id": 1}) == "one"
            assert flow.call("set", CHANGE, on="mortgage", input={"amount": 5, "id": 1}) == 1
    assert said == ["book"]
    assert desks.bank.balances()["mortgage"] == START + 6
    desks.end(txid)


@pytest.mark.rule("R4")
def test_a_call_in_a_database_that_nobody_heard_of_is_found_there(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("change", change, on="mortgage", input={"id": 1})
    desks.stored.rows("UPDATE step SET state = 'started', output = NULL, \"left\" = 'unknown'")
    with desks.joined(txid) as flow:
        assert flow.call("change", change, on="mortgage", input={"id": 1}) == "one"
    assert desks.bank.balances()["mortgage"] == START + 1


@pytest.mark.req("CARD-06")
def test_a_call_in_a_database_is_undone_only_if_it_was_done(desks: Desks) -> None:
    def refuse(connection: Connection, id: int) -> None:
        change(connection, id)
        raise ValueError

    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("one", change, on="mortgage", input={"id": 1}, compensate=give_back)
        with pytest.raises(ValueError):
            flow.call("two", refuse, on="mortgage", input={"id": 1}, compensate=give_back)
        flow.roll_back()
    assert said == ["give back one"]
    assert desks.bank.balances()["mortgage"] == START


def test_a_flow_with_a_call_that_failed_does_not_end(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        with pytest.raises(ValueError):
            flow.call("book", fail, input={"what": "book"}, compensate=call_off)
        with pytest.raises(Exception, match="'book'"):
            flow.end()
        flow.end(handled=["book"])
    assert said == ["book"]


@pytest.mark.rule("R6")
def test_the_next_epoch_of_a_key_opens_once_all_is_undone(desks: Desks) -> None:
    broken.append("book")
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=Undo(call_off, retries=0))
        with pytest.raises(CompensationFailed, match="can't be undone"):
            flow.roll_back()
    with pytest.raises(NotCompensated):
        desks.begin("current")
    broken.clear()
    SagasByHand(desks.bank.broker.kernel).resume(txid, who="anna", why="the line is open again")
    again = desks.begin("current")  # whoever comes next sees to it
    assert again != txid
    assert said == ["book", "undo book"]


def test_a_step_that_can_not_be_undone_may_be_skipped(desks: Desks) -> None:
    broken.append("book")
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("first", call, input={"what": "first"}, compensate=call_off)
        flow.call("book", call, input={"what": "book"}, compensate=Undo(call_off, retries=0))
        with pytest.raises(CompensationFailed):
            flow.roll_back()
    assert desks.bank.broker.kernel.store.work.saga_figures().stalled == 1
    SagasByHand(desks.bank.broker.kernel).skip(txid, 2, who="anna", why="I phoned them")
    assert take_over(desks) == 1
    assert states(desks, txid) == ["compensated", "skipped"]
    assert said == ["first", "book", "undo first"]


def test_whoever_takes_over_while_the_end_is_undoing_goes_on_alone(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
    desks.bank.recover()  # ROLLBACK stands, and another engine is about to drive it
    desks.bank.broker.kernel.store.work.claim("another", limit=1, txid=txid)
    with pytest.raises(NotCompensated):
        desks.begin("current")
    assert said == ["book"]
    assert take_over(desks) == 1
    assert desks.begin("current") != txid


def test_what_would_be_undone_is_told(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        with flow.step("debit", on="current", **undone_by("debit")) as connection:
            connection.execute(text(CHANGE), {"amount": -10, "id": 1})
        journal(flow, "mortgage", "audit")
    trace = desks.bank.broker.kernel.store.overview.trace(txid)
    assert trace is not None
    told = [(each.does, each.what) for each in preview_of(trace, undo=True)]
    assert ("compensate", "step 2 audit") in told
    assert ("leave", "step 1 debit, which is rolled back") in told


def test_what_can_not_be_undone_as_said_is_refused_before_anything_runs(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        with pytest.raises(ConfigError, match="register it"):
            flow.call("book", call, compensate=lambda: None)
        with pytest.raises(ConfigError, match="compensate="):
            flow.step("debit", on="current", input={"what": "debit"})
        with pytest.raises(ResourceUnknown):
            flow.step("debit", on="current", compensate=Undo(CHANGE, on="nowhere"))
        with pytest.raises(ConfigError, match="leave compensate= out"):
            flow.step("book", on="home", compensate=call_off)
        with pytest.raises(ConfigError, match="a name"):
            flow.call("", call)
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        assert ledger.flows.steps(txid) == []


def test_a_key_that_committed_undoes_nothing(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.call("book", call, input={"what": "book"}, compensate=call_off)
        flow.end()
    with pytest.raises(AlreadyCommitted):
        desks.begin("current")
    assert said == ["book"]


def test_the_attempts_of_a_call_are_kept(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        with pytest.raises(ValueError):
            flow.call("book", fail, input={"what": "x"})
        flow.call("book", call, input={"what": "x"})
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        found = [(each.attempt, each.state) for each in ledger.flows.steps(txid)]
    assert found == [(1, StepState.FAILED), (2, StepState.DONE)]


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.rule("R6")
def test_what_a_step_did_is_undone_where_it_did_it_though_a_later_attempt_works_elsewhere(
    desks: Desks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    txid = desks.begin(*BOTH)
    with desks.joined(txid) as flow, monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr(Attempts, "done", die)
        killed.setattr(Attempts, "failed", lambda *_, **__: None)
        flow.call("book", change, on="current", input={"id": 2}, compensate=give_back)
    with desks.joined(txid) as flow, pytest.raises(ZeroDivisionError), flow.step("book", on="mortgage"):
        raise ZeroDivisionError
    with desks.joined(txid) as flow:
        flow.roll_back()
    assert said == ["give back one"]


@pytest.mark.rule("R6")
def test_what_a_lane_committed_is_undone_though_only_an_earlier_attempt_said_how(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow, pytest.raises(ZeroDivisionError):
        with flow.step("audit", lane="mortgage", hold="journal", compensate=correct, input={"what": "audit"}):
            raise ZeroDivisionError
    with desks.joined(txid) as flow, flow.step("audit", lane="mortgage", hold="journal") as written:
        written.execute("update account set balance = balance + 1 where id = 1")
    with desks.joined(txid) as flow:
        flow.lane("mortgage").commit()
        flow.roll_back()
    assert said == ["undo audit"]
