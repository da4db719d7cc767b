"""Flows under logins that do not own the store: producers do the steps, an engine tells, nobody else sees them."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from tests.flows.flow.undone import call, call_off, said
from tests.scene.stored import Stored
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
)
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import AT_WORK
from txsaga.checkback.profile import LEASE
from txsaga.core.decision import Decision
from txsaga.errors import FlowUnknown, RightsMissing
from txsaga.flows.flow import OVER, Budgets, Flow
from txsaga.flows.recovery import Recovery
from txsaga.flows.saga_driver import SagaRecovery
from txsaga.messages.decide import DecidedBy
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


@pytest.fixture
def bank(foreign_databases: Callable[[], str]) -> Iterator[Engine]:
    made = create_engine(foreign_databases())
    with made.begin() as connection:
        connection.exec_driver_sql("create table t (id int)")
    yield made
    made.dispose()


def begun(broker: Broker, bank: Engine) -> Flow:
    """Begin a flow and do a step of each kind."""
    broker.register("bank", bank)
    flow = broker.producer("shop", checker=lambda _: None).begin_flow("bank", lanes=["bank"], key="a")
    with flow.step("main", on="bank") as connection:
        connection.exec_driver_sql("insert into t values (1)")
    with flow.step("beside", lane="bank", hold="journal") as journal:
        journal.execute("insert into t values (2)")
    with flow.step("tell"):
        flow.send("orders", b"done")
    return flow


def rows(bank: Engine) -> list[int]:
    """Read what everybody sees."""
    with bank.connect() as connection:
        return list(connection.exec_driver_sql("select id from t order by id").scalars())


def test_a_producer_does_all_of_a_flow(open_as: Open, operator: Broker, bank: Engine) -> None:
    flow = begun(open_as(Right.PRODUCER), bank)
    flow.lane("bank").commit()
    assert rows(bank) == [2]
    flow.touch()
    flow.end()
    assert rows(bank) == [1, 2]


def test_a_producer_makes_calls_that_can_be_undone_and_nobody_else_says_that_he_is_in_them(
    open_as: Open, operator: Broker
) -> None:
    said.clear()
    producer = open_as(Right.PRODUCER)
    flow = producer.producer("shop", checker=lambda _: None).begin_flow(key="call")
    flow.call("book", call, input={"what": "book"}, compensate=call_off)
    with flow.step("tell", compensate=call_off, input={"what": "tell"}):
        flow.send("orders", b"done")
    with pytest.raises(RightsMissing):
        open_as(Right.CONSUMER).kernel.store.leases.keep(AT_WORK, f"{flow.txid}/me/book", LEASE)
    flow.roll_back()
    assert said == ["book", "undo tell", "undo book"]


def test_a_producer_rolls_a_flow_back(open_as: Open, operator: Broker, bank: Engine) -> None:
    flow = begun(open_as(Right.PRODUCER), bank)
    with pytest.raises(ZeroDivisionError), flow.step("fails", on="bank"):
        raise ZeroDivisionError
    flow.lane("bank").roll_back()
    flow.roll_back()
    assert rows(bank) == []


def test_an_engine_tells_of_locks_and_what_a_lane_decided(
    open_as: Open, operator: Broker, engine: Broker, bank: Engine, home_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, stored = begun(open_as(Right.PRODUCER), bank), Stored(home_url)
    stored.rows("UPDATE step SET at = at - interval '1 hour'")
    assert Budgets(engine.kernel).run_once() == 1
    assert [each.what for each in engine.kernel.store.overview.history(flow.txid)] == [OVER]
    assert [each.over for each in operator.kernel.store.flows.held()] == [1]
    with monkeypatch.context() as away:
        away.setattr("txsaga.resources.postgres.PostgresParticipant.finish", _nobody)
        with pytest.raises(ZeroDivisionError):
            flow.lane("bank").commit()
    assert rows(bank) == []
    engine.register("bank", bank)
    stored.rows("UPDATE branch SET at = at - interval '1 hour'")
    Recovery(engine.kernel).run_once()
    assert rows(bank) == [2]
    flow.roll_back()
    assert rows(bank) == [2]


def test_another_producer_finds_no_such_flow(open_as: Open, operator: Broker, bank: Engine) -> None:
    flow = begun(open_as(Right.PRODUCER), bank)
    rival = open_as(Right.PRODUCER)
    with pytest.raises(FlowUnknown):
        rival.flow(flow.txid)
    with rival.kernel.store.ledgers.open() as ledger:
        assert ledger.flows.steps(flow.txid) == []
        assert ledger.flows.journal(flow.txid) == []
    flow.roll_back()


def test_what_a_producers_flow_committed_is_undone_by_itself_or_by_an_engine(
    open_as: Open, operator: Broker, engine: Broker, bank: Engine, home_url: str
) -> None:
    flow, stored = begun(open_as(Right.PRODUCER), bank), Stored(home_url)
    undo: dict[str, Any] = {"compensate": "delete from t where id = 3", "input": {}}
    with pytest.raises(ZeroDivisionError), flow.step("aside", lane="bank", **undo):
        raise ZeroDivisionError
    with flow.step("aside", lane="bank", **undo) as connection:
        connection.exec_driver_sql("insert into t values (3)")
    flow.lane("bank").commit()
    flow.call("more", "insert into t values (4)", on="bank", compensate="delete from t where id = 4")
    assert rows(bank) == [2, 3, 4]
    with flow._kernel.store.ledgers.open() as ledger:
        ledger.lock(flow.txid)
        flow._kernel.decider.within(ledger, flow.txid, Decision.ROLLBACK, DecidedBy(who="anna", why="a test"))
    engine.register("bank", bank)
    stored.rows("UPDATE saga SET until = until - interval '1 hour'")
    assert SagaRecovery(engine.kernel, threads=1).run_once() == 1
    assert rows(bank) == [2]


def _nobody(*_: object) -> None:
    raise ZeroDivisionError
