"""What waits for a person after its decision is listed: heuristic branches, and sagas that are stalled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.console.conftest import Enter
from tests.flows.coordinated.bank import Bank
from tests.scene.shop import Shop
from tests.scene.stored import Stored
from txsaga import Undo, compensation
from txsaga.console.people import Rank
from txsaga.core.decision import Decision

pytestmark = pytest.mark.postgres


@pytest.fixture
def bank(home_url: str, shop: Shop, stored: Stored, foreign_databases: Callable[[], str]) -> Iterator[Bank]:
    """Give a bank on the shop's store."""
    engines = {name: create_engine(foreign_databases()) for name in ("current", "mortgage")}
    with txsaga.connect(home_url, resources=engines, roles=False, answering=False, env={}) as broker:
        yield Bank(broker, engines, stored).open()
    for engine in engines.values():
        engine.dispose()


@compensation("console-refuses")
def refuse(seat: str) -> None:
    """Fail each time."""
    raise ValueError(f"no refund for {seat}")


def booked(seat: str) -> str:
    return seat


def listed(enter: Enter, problem: str) -> list[int]:
    return [each["txid"] for each in enter(Rank.VIEWER).get(f"/api/v1/transactions?problem={problem}").json()["items"]]


def test_a_transaction_with_a_heuristic_branch_is_listed_until_it_is_forgotten(bank: Bank, enter: Enter) -> None:
    bank.left(account=2)
    life = bank.left()
    bank.overrule(life, "mortgage", Decision.ROLLBACK)
    assert listed(enter, "heuristic") == []
    bank.recover()
    assert (listed(enter, "heuristic"), listed(enter, "stalled")) == ([life.txid], [])
    client = enter(Rank.OPERATOR)
    page = client.get("/?problem=heuristic").text
    assert "a person, mortgage: heuristic rolled back" in page
    assert '<option value="heuristic" selected>' in page
    assert '<a href="/?problem=heuristic">Transactions with a heuristic branch</a>' in client.get("/alarms").text
    assert '<a href="/?problem=heuristic">1</a>' in client.get("/resources").text
    said = {"id": str(life.txid), "branch": "2", "attempt": "1", "reason": "paid by hand"}
    assert client.post("/api/v1/acts/forget", json=said).status_code == 200
    assert listed(enter, "heuristic") == []


def test_a_stalled_saga_is_listed_until_its_step_is_skipped(shop: Shop, enter: Enter) -> None:
    with shop.broker.saga("travel", key="over") as saga:
        saga.step(booked, compensate=refuse, input={"seat": "11A"}, name="book")
    with pytest.raises(LookupError), shop.broker.saga("travel", key="trip") as saga:
        saga.step(booked, compensate=Undo(refuse, retries=0), input={"seat": "12A"}, name="book")
        raise LookupError
    assert (listed(enter, "stalled"), listed(enter, "heuristic")) == ([saga.txid], [])
    client = enter(Rank.OPERATOR)
    assert '<a href="/?problem=stalled">Stalled sagas</a>' in client.get("/alarms").text
    page = client.get("/?problem=stalled&group=travel").text
    assert '<td data-label="Waits for">a person</td>' in page
    said = {"id": str(saga.txid), "step": "1", "reason": "refunded by hand"}
    assert client.post("/api/v1/acts/skip-step", json=said).status_code == 200
    assert listed(enter, "stalled") == []


def test_an_unknown_problem_is_refused(enter: Enter) -> None:
    answer = enter(Rank.VIEWER).get("/?problem=late")
    assert (answer.status_code, "it is one of heuristic, stalled" in answer.text) == (400, True)
