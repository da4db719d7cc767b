"""Flows and sagas in flight while their store comes to one table of steps: each ends as it would have."""

from __future__ import annotations

import pytest

from tests.flows.coordinated.bank import START
from tests.flows.flow.desks import BOTH, Desks, pay_by_update
from tests.flows.flow.test_handled import begun, killed_in
from tests.flows.flow.undone import broken, call, call_off, journal, said, states, take_over, undone_by
from tests.store.older_steps import take_back
from txsaga import Undo
from txsaga.errors import CompensationFailed, StepDone
from txsaga.flows.by_hand import SagasByHand
from txsaga.flows.flow import Flow
from txsaga.store import migrate
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()
    broken.clear()


def worked_on(desks: Desks, key: str, account: int) -> int:
    """Begin a flow and do steps of each kind: held, journalled, in a lane, failed, left by a dead process, a call."""
    for engine in desks.engines.values():
        with engine.begin() as connection:
            connection.exec_driver_sql(f"insert into account values ({account}, {START}) on conflict do nothing")
    txid = desks.begin(*BOTH, key=key, lanes=["mortgage"])
    with desks.joined(txid) as flow:
        work = begun(flow, "debit", on="current")
        assert work._session is not None
        pay_by_update(work._session.handle, -50, account)
        work._prepared(work._session)  # it dies before it can say that it is done
        work._session.leave()
        work._watch.close()
    desks.pay(txid, "debit", -10, account=account, on="current")
    with desks.joined(txid) as flow, pytest.raises(ZeroDivisionError):
        with flow.step("credit", on="mortgage", hold="journal", **undone_by("credit")):
            raise ZeroDivisionError
    desks.write(txid, "credit", 10, account=account, on="mortgage")
    with desks.joined(txid) as flow:
        journal(flow, "mortgage", "audit")
        flow.call("book", call, **undone_by("book"))
        with pytest.raises(ZeroDivisionError), flow.step("optional", on="current"):
            raise ZeroDivisionError
    killed_in(desks, txid, "abandoned", on="current")
    desks.write(txid, "in the open unit", 1, lane="mortgage")
    return txid


def balances(desks: Desks, account: int) -> tuple[int | None, int | None]:
    """Return what everybody sees of an account in both databases."""
    found = desks.bank.balances(account)
    return found["current"], found["mortgage"]


def migrated(desks: Desks) -> None:
    """Bring the store to the program before, and from there to this one."""
    take_back(desks.stored)
    open_store(desks.url).close()
    assert desks.stored.value("SELECT version_num FROM alembic_version") == migrate.newest()


def in_saga(desks: Desks, key: str, *whats: str) -> int:
    """Leave a saga as an owner does that is killed after some steps."""
    saga = desks.bank.broker.saga("travel", key=key)
    saga.__enter__()
    for what in whats:
        saga.step(call, compensate=call_off, input={"what": what}, name=what)
    saga._owner.leave(saga._steps)
    assert saga.txid is not None
    return saga.txid


def test_a_flow_in_flight_commits_with_all_that_counts(desks: Desks) -> None:
    txid = worked_on(desks, "commits", 2)
    migrated(desks)
    with desks.joined(txid) as flow:
        assert _attempts(flow) == [
            ("debit", 1, "started", "prepared"),
            ("debit", 2, "done", "prepared"),
            ("credit", 1, "failed", "journal"),
            ("credit", 2, "done", "journal"),
            ("audit", 1, "done", "prepared"),
            ("book", 1, "done", "commit"),
            ("optional", 1, "failed", "prepared"),
            ("abandoned", 1, "started", "prepared"),
            ("in the open unit", 1, "done", "journal"),
        ]
        for name in ("debit", "credit"):
            with pytest.raises(StepDone), flow.step(name, on="current"):
                raise AssertionError
        assert flow.call("book", call, input={"what": "book"}) == "reference of book"
        flow.end(handled=["optional", "abandoned"])
    assert balances(desks, 2) == (START - 10, START + 10)
    assert balances(desks, 1) == (START, START + 2)  # the lane
    assert (said, desks.bank.prepared()) == (["book"], [])


def test_a_flow_in_flight_rolls_back_and_is_undone_in_reverse(desks: Desks) -> None:
    txid = worked_on(desks, "rolls back", 2)
    migrated(desks)
    with desks.joined(txid) as flow:
        flow.roll_back()
    assert said == ["book", "undo book", "undo audit"]
    assert states(desks, txid) == ["compensated"] * 3
    assert balances(desks, 2) == (START, START)
    assert balances(desks, 1) == (START, START)
    assert desks.bank.prepared() == []


def test_a_step_that_was_under_way_is_tried_again(desks: Desks) -> None:
    txid = worked_on(desks, "goes on", 2)
    migrated(desks)
    for step in ("optional", "abandoned"):
        desks.write(txid, step, -1, on="current")
    desks.end(txid)
    assert balances(desks, 2) == (START - 10, START + 10)
    assert balances(desks, 1) == (START - 2, START + 2)


def test_a_flow_that_was_being_undone_is_undone_to_its_end(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    with desks.joined(txid) as flow:
        journal(flow, "mortgage", "audit")
        flow.call("hotel", call, input={"what": "hotel"}, compensate=Undo(call_off, retries=0))
        flow.call("car", call, **undone_by("car"))
        broken.append("hotel")
        with pytest.raises(CompensationFailed):
            flow.roll_back()
    before = states(desks, txid)
    migrated(desks)
    assert states(desks, txid) == before == ["compensating", "compensation_failed", "compensated"]
    broken.clear()
    SagasByHand(desks.bank.broker.kernel).resume(txid, who="anna", why="the hotel answers again")
    take_over(desks)
    assert states(desks, txid) == ["compensated"] * 3
    assert said == ["hotel", "car", "undo car", "undo hotel", "undo audit"]
    assert balances(desks, 1) == (START, START)


def test_sagas_in_flight_are_undone(desks: Desks) -> None:
    undone = in_saga(desks, "undone", "hotel", "car")
    broken.append("hotel")
    take_over(desks)
    left = in_saga(desks, "left", "train", "bus")
    migrated(desks)
    assert (states(desks, undone), states(desks, left)) == (["compensating", "compensated"], ["done", "started"])
    broken.clear()
    for _ in range(2):
        take_over(desks)
    for txid in (left, undone):
        assert states(desks, txid) == ["compensated"] * 2
    assert sorted(each for each in said if "undo" in each) == ["undo bus", "undo car", "undo hotel", "undo train"]


def _attempts(flow: Flow) -> list[tuple[str, int, str, str | None]]:
    with flow._kernel.store.ledgers.open() as ledger:
        return [(each.name, each.attempt, str(each.state), each.hold) for each in ledger.flows.steps(flow.txid)]
