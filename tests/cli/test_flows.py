"""What commands tell of a flow: its steps and how they are held, what can be undone, and what holds locks too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.cli.conftest import Cli
from tests.flows.coordinated.bank import Bank, pay
from tests.scene.stored import Stored
from txsaga.flows.flow import Flow

pytestmark = pytest.mark.postgres


@pytest.fixture
def flow(own_url: str, foreign_databases: Callable[[], str]) -> Iterator[Flow]:
    engines = {name: create_engine(foreign_databases()) for name in ("current", "mortgage")}
    with txsaga.connect(own_url, resources=engines, roles=False, answering=False, env={}) as broker:
        bank = Bank(broker, engines, Stored(own_url)).open()
        yield bank.producer.begin_flow(*engines, lanes=["mortgage"], key="transfer-7")
    for engine in engines.values():
        engine.dispose()


@pytest.mark.req("IBM-06", "IBM-41")
def test_a_flow_is_shown_with_its_steps_its_holds_and_what_can_be_undone(bare: Cli, own_url: str, flow: Flow) -> None:
    def shown() -> dict[str, Any]:
        found = bare("tx", "show", str(flow.txid), "--json", TXSAGA_URL=own_url).document
        return found

    assert (shown()["work"], shown()["undo"]) == ([], [])
    with flow.step("debit", on="current") as connection:
        pay(connection, -10)
    with flow.step("credit", on="mortgage", hold="journal") as journal:
        journal.execute("update account set balance = balance + :secret where id = 1", {"secret": 10}, rows=1)
    with flow.step("audit", lane="mortgage") as connection:
        connection.exec_driver_sql("insert into account values (2, 1)")
    found = shown()
    told = [(each["step"], each["state"], each["hold"], each["unit"], each["statements"]) for each in found["work"]]
    assert told == [
        ("debit", "done", "prepared", None, None),
        ("credit", "done", "journal", None, 1),
        ("audit", "done", "prepared", 1, None),
    ]
    assert [each["what"] for each in found["undo"]] == [
        "1 statement of step credit, not done yet",
        "the work of step debit",
        "the work of step audit",
    ]
    flow.lane("mortgage").commit()
    assert len(shown()["undo"]) == 2
    flow.end()
    assert shown()["undo"] == []


def test_the_status_tells_what_flows_hold(bare: Cli, own_url: str, flow: Flow) -> None:
    with flow.step("debit", on="current") as connection:
        pay(connection, -10)
    Stored(own_url).rows("UPDATE step SET at = at - interval '1 hour'")
    found = bare("status", "--json", TXSAGA_URL=own_url).document
    (held,) = found["held"]
    assert (held["resource"], held["held"], held["over"]) == ("current", 1, 1)
    lines = bare("status", TXSAGA_URL=own_url).lines
    assert any(line.split()[:3] == ["current", "1", "1"] for line in lines)
    flow.roll_back()


def test_what_amends_a_flow_and_what_is_amended_name_each_other(bare: Cli, own_url: str, flow: Flow) -> None:
    with flow.step("debit", on="current") as connection:
        pay(connection, -10)
    flow.end()
    with txsaga.connect(own_url, roles=False, answering=False, env={}) as broker:
        producer = broker.producer("bank", checker=lambda _: None)
        amending = producer.begin_flow(key="transfer-7", amend="by hand")
        amending.end()
    old, new = (bare("tx", "show", str(each.txid), "--json", TXSAGA_URL=own_url).document for each in (flow, amending))
    assert (old["amended_as"], new["amends"]) == (new["txid"], old["txid"])
    assert f"amended by transaction {amending.txid}" in [each["what"] for each in old["timeline"]["steps"]]
    assert [each["what"] for each in new["timeline"]["steps"]][:2] == [
        "opened under key transfer-7, attempt 2",
        f"amends transaction {flow.txid}",
    ]
