"""Lanes of a flow, settled in other processes than their statements: how work is cut into tasks changes no result."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.flow.conftest import OpenDesks
from tests.flows.flow.desks import BOTH, Desks, pay_by_update
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, RowsDiffer, StepsOpen, TxSagaError
from txsaga.flows.branch import BranchState

pytestmark = pytest.mark.postgres

HOLDS = pytest.mark.parametrize("hold", ["prepared", "journal"])


class Stop(Exception):
    """What the user's code raises."""


def audit(desks: Desks, txid: int, step: str, amount: int, hold: str, *, lane: str = "mortgage") -> None:
    """Do a step in a lane."""
    work = desks.pay if hold == "prepared" else desks.write
    work(txid, step, amount, lane=lane)


def settle(desks: Desks, txid: int, decision: Decision, *, lane: str = "mortgage") -> None:
    """Settle a lane in a process of its own."""
    with desks.joined(txid) as flow:
        found = flow.lane(lane)
        found.commit() if decision is Decision.COMMIT else found.roll_back()


def over(desks: Desks, txid: int, *, fails: bool = False) -> None:
    """End the flow, well or not."""
    with desks.joined(txid) as flow:
        flow.roll_back() if fails else flow.end()


def units(desks: Desks, txid: int) -> list[Decision | None]:
    """Return how the units of all lanes were settled by themselves."""
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        return [each.decision for each in ledger.flows.units(txid) if each.number]


@HOLDS
@pytest.mark.req("IBM-15", "IBM-16", "IBM-18", "IBM-19")
def test_a_lane_begins_by_itself_and_commits_while_main_is_open(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    audit(desks, txid, "audit", 1, hold)
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert units(desks, txid) == [None]
    settle(desks, txid, Decision.COMMIT)
    assert desks.bank.balances() == {"current": START, "mortgage": START + 1}
    assert units(desks, txid) == [Decision.COMMIT]
    over(desks, txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 1}
    assert desks.bank.prepared() == []


@HOLDS
@pytest.mark.req("IBM-21", "IBM-66")
def test_what_a_lane_committed_stays_when_main_rolls_back(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    audit(desks, txid, "audit", 1, hold)
    settle(desks, txid, Decision.COMMIT)
    over(desks, txid, fails=True)
    desks.bank.recover()
    assert desks.bank.balances() == {"current": START, "mortgage": START + 1}
    assert {each.state for each in desks.bank.broker.kernel.store.work.branches(txid) if each.aux} == {
        BranchState.COMMITTED
    }


@HOLDS
@pytest.mark.req("IBM-24", "IBM-29")
def test_a_lane_rolls_back_while_main_goes_on(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    audit(desks, txid, "audit", 1, hold)
    settle(desks, txid, Decision.ROLLBACK)
    over(desks, txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START}
    assert units(desks, txid) == [Decision.ROLLBACK]


@HOLDS
@pytest.mark.req("IBM-25")
def test_a_lane_is_used_again_each_unit_on_its_own(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    for amount, decision in ((1, Decision.COMMIT), (10, Decision.ROLLBACK), (100, Decision.COMMIT)):
        audit(desks, txid, f"audit {amount}", amount, hold)
        settle(desks, txid, decision)
    settle(desks, txid, Decision.COMMIT)  # nothing is open
    over(desks, txid)
    assert desks.bank.balances() == {"current": START, "mortgage": START + 101}
    assert units(desks, txid) == [Decision.COMMIT, Decision.ROLLBACK, Decision.COMMIT]


@HOLDS
@pytest.mark.req("IBM-28")
@pytest.mark.parametrize("fails", [False, True], ids=["main commits", "main fails"])
def test_an_open_unit_follows_the_outcome(desks: Desks, hold: str, fails: bool) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    audit(desks, txid, "audit", 1, hold)
    over(desks, txid, fails=fails)
    moved = {"current": START, "mortgage": START} if fails else {"current": START - 10, "mortgage": START + 1}
    assert desks.bank.balances() == moved
    assert desks.bank.prepared() == []


@HOLDS
@pytest.mark.req("IBM-23", "IBM-26", "IBM-27", "IBM-39")
def test_each_resource_has_a_lane_of_its_own_settled_by_itself(desks: Desks, hold: str) -> None:
    txid = desks.begin(lanes=BOTH)
    for name in BOTH:
        audit(desks, txid, f"first in {name}", 1, hold, lane=name)
    settle(desks, txid, Decision.COMMIT, lane="current")
    assert units(desks, txid) == [Decision.COMMIT, None]
    settle(desks, txid, Decision.ROLLBACK, lane="mortgage")
    over(desks, txid)
    assert desks.bank.balances() == {"current": START + 1, "mortgage": START}


@HOLDS
@pytest.mark.req("IBM-33", "IBM-45")
def test_one_database_takes_work_in_main_and_beside_it(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["current"])
    with desks.joined(txid) as flow, flow.step("main", on="current") as connection:
        connection.exec_driver_sql("insert into account values (2, 7)")
    with desks.joined(txid) as flow, flow.step("beside", lane="current", hold=hold) as work:
        (work.execute if hold == "journal" else work.exec_driver_sql)("insert into account values (3, 7)")
    settle(desks, txid, Decision.COMMIT, lane="current")
    over(desks, txid, fails=True)
    with desks.engines["current"].connect() as connection:
        assert connection.exec_driver_sql("select id from account order by id").scalars().all() == [1, 3]


def test_a_unit_of_several_steps_held_in_both_ways_is_one(desks: Desks) -> None:
    txid = desks.begin(lanes=["mortgage"])
    with desks.joined(txid) as flow, flow.step("one", lane="mortgage") as connection:
        connection.exec_driver_sql("insert into account values (2, 1)")
    with desks.joined(txid) as flow, flow.step("two", lane="mortgage") as connection:
        connection.exec_driver_sql("insert into account values (3, 1)")
    audit(desks, txid, "three", 1, "journal")
    settle(desks, txid, Decision.COMMIT)
    assert [desks.bank.balances(account=id)["mortgage"] for id in (1, 2, 3)] == [START + 1, 1, 1]
    over(desks, txid, fails=True)
    assert [desks.bank.balances(account=id)["mortgage"] for id in (1, 2, 3)] == [START + 1, 1, 1]


def test_a_lane_whose_journal_can_not_be_done_as_recorded_is_rolled_back(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow, flow.step("first", lane="mortgage") as connection:
        connection.exec_driver_sql("insert into account values (2, 1)")
    desks.write(txid, "audit", 1, account=77, lane="mortgage")
    with pytest.raises(RowsDiffer, match="changed 0 rows instead of 1"):
        settle(desks, txid, Decision.COMMIT)
    assert units(desks, txid) == [Decision.ROLLBACK]
    over(desks, txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START}
    assert desks.bank.balances(account=2)["mortgage"] is None
    assert desks.bank.prepared() == []


def test_a_unit_is_not_settled_while_a_step_of_it_is_at_work(desks: Desks) -> None:
    txid = desks.begin(lanes=["mortgage"])
    with desks.joined(txid) as flow, flow.step("audit", lane="mortgage") as connection:
        pay_by_update(connection, 1)
        with pytest.raises(StepsOpen, match="step 'audit' is not done"):
            settle(desks, txid, Decision.COMMIT)
    settle(desks, txid, Decision.COMMIT)
    assert desks.bank.balances()["mortgage"] == START + 1


@pytest.mark.req("IBM-14", "IBM-36", "IBM-37", "IBM-40")
def test_a_queue_has_no_lane_and_the_reason_is_the_queue(desks: Desks) -> None:
    with pytest.raises(ConfigError, match="topics have no lanes"):
        desks.begin(lanes=[TRANSFERS])


@HOLDS
@pytest.mark.rule("R17")
@pytest.mark.req("IBM-67")
def test_a_lane_that_was_killed_behind_its_decision_is_committed_by_recovery(desks: Desks, hold: str) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    audit(desks, txid, "audit", 1, hold)
    with patch("txsaga.resources.postgres.PostgresParticipant.finish", side_effect=Stop), pytest.raises(Stop):
        settle(desks, txid, Decision.COMMIT)
    assert desks.bank.balances()["mortgage"] == START
    assert len(desks.bank.prepared()) == 1
    over(desks, txid, fails=True)
    desks.bank.recover()
    assert desks.bank.balances()["mortgage"] == START + 1
    assert desks.bank.prepared() == []


@pytest.mark.rule("R17")
def test_a_lane_that_was_killed_before_its_decision_is_settled_anew_and_once(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    audit(desks, txid, "audit", 1, "journal")
    with patch("txsaga.flows.lane.FlowLane._decided", side_effect=Stop), pytest.raises(Stop):
        settle(desks, txid, Decision.COMMIT)
    assert len(desks.bank.prepared()) == 1
    settle(desks, txid, Decision.COMMIT)
    assert desks.bank.balances()["mortgage"] == START + 1
    assert desks.bank.prepared() == []


@pytest.mark.rule("R17")
@pytest.mark.parametrize("then", ["commit", "lane rolls back", "end", "roll back"])
def test_a_journal_that_was_committed_in_one_phase_is_not_done_twice(open_desks: OpenDesks, then: str) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin("current", lanes=["mortgage"])
    desks.write(txid, "audit", 1, lane="mortgage")
    with patch("txsaga.flows.lane.FlowLane._decided", side_effect=Stop), pytest.raises(Stop):
        settle(desks, txid, Decision.COMMIT)
    assert desks.bank.balances()["mortgage"] == START + 1  # and nobody wrote that down
    if then == "commit":
        settle(desks, txid, Decision.COMMIT)
    elif then == "lane rolls back":
        with pytest.raises(TxSagaError, match="was committed before"):
            settle(desks, txid, Decision.ROLLBACK)
    over(desks, txid, fails=then == "roll back")
    desks.bank.recover()
    assert desks.bank.balances()["mortgage"] == START + 1
    assert {each.state for each in desks.bank.broker.kernel.store.work.branches(txid)} <= {
        BranchState.COMMITTED,
        BranchState.ROLLED_BACK,
    }


@pytest.mark.rule("R17")
def test_a_late_commit_in_one_phase_is_impossible_once_the_lane_is_settled_anew(open_desks: OpenDesks) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin("current", lanes=["mortgage"])
    desks.write(txid, "audit", 1, lane="mortgage")
    with desks.process() as broker:
        lane = broker.flow(txid).lane("mortgage")
        unit = lane._begun(journal=True)  # a process that stops here, and goes on when it is too late
        assert unit is not None
        settle(desks, txid, Decision.COMMIT)
        assert desks.bank.balances()["mortgage"] == START + 1
        with pytest.raises(TxSagaError):
            lane._commit_journal(unit)
    assert desks.bank.balances()["mortgage"] == START + 1


@HOLDS
@pytest.mark.rule("R3")
@pytest.mark.parametrize("fails", [False, True], ids=["main commits", "main fails"])
def test_a_lane_that_is_late_decides_nothing_once_the_flow_is_being_ended(desks: Desks, hold: str, fails: bool) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    audit(desks, txid, "audit", 1, hold)
    with desks.process() as broker:
        lane = broker.flow(txid).lane("mortgage")
        ended, decided = list[bool](), lane._decided

        def late(*given: object, **more: object) -> object:
            if not ended:
                ended.append(True)
                over(desks, txid, fails=fails)  # another process, while this one stands still
            return decided(*given, **more)  # type: ignore[arg-type]

        with patch.object(lane, "_decided", late), pytest.raises(TxSagaError):
            lane.commit()
    desks.bank.recover()
    assert desks.bank.balances()["mortgage"] == START + (not fails)
    assert desks.bank.prepared() == []


def test_what_can_not_vote_is_held_in_the_journal_alone_and_not_left_open(open_desks: OpenDesks) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow, pytest.raises(ConfigError, match='hold its work with "journal"'):
        flow.step("audit", lane="mortgage", hold="prepared")
    desks.write(txid, "audit", 1, lane="mortgage")
    with pytest.raises(TxSagaError, match="can't follow the outcome"):
        over(desks, txid)
    desks.bank.recover()
    assert desks.bank.balances() == {"current": START, "mortgage": START}


@HOLDS
@pytest.mark.req("IBM-17", "IBM-22", "IBM-38")
def test_the_schedule_of_nine_events_in_processes_of_their_own(desks: Desks, hold: str) -> None:
    desks.bank.broker.create_topic("orders", queues=1)
    desks.bank.producer.send("orders", b"move ten")
    desks.bank.told()
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.process() as broker, broker.flow(txid) as flow:
        consumer = broker.consumer("payments", ["orders"], invisible=timedelta(minutes=5))
        (message,) = consumer.receive(wait=5)
        with flow.step("1"):
            flow.consume(message)
        consumer.close()
    desks.pay(txid, "2", -10, on="current")
    aux(desks, txid, "3", 8, hold)
    for event, amount in (("4", 4), ("5", 6)):
        desks.write(txid, event, amount, on="mortgage")  # two steps on one row: journal
    aux(desks, txid, "6", 9, hold)
    settle(desks, txid, Decision.COMMIT)  # 7
    with desks.joined(txid) as flow, flow.step("8"):
        flow.send(TRANSFERS, b"ten moved")
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    desks.end(txid)  # 9
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
    assert desks.bank.told() == ["ten moved"]
    with desks.engines["mortgage"].connect() as connection:
        assert connection.exec_driver_sql("select id from account order by id").scalars().all() == [1, 8, 9]
    consumer = desks.bank.broker.consumer("payments", ["orders"])
    assert consumer.receive(wait=0) == []
    consumer.close()


def aux(desks: Desks, txid: int, event: str, id: int, hold: str) -> None:
    """Do an event of the lane."""
    statement = f"insert into account values ({id}, 0)"
    with desks.joined(txid) as flow, flow.step(event, lane="mortgage", hold=hold) as work:
        (work.execute if hold == "journal" else work.exec_driver_sql)(statement)
