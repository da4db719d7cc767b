"""Locks that are held for longer than their budget are told of, once."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.flows.flow.desks import BOTH, Desks
from txsaga.flows.flow import OVER, Budgets
from txsaga.store.doctor import Severity, holding
from txsaga.store.store import Store

pytestmark = pytest.mark.postgres


def held_for(desks: Desks, seconds: float) -> None:
    """Let time pass for what is held."""
    desks.stored.rows("UPDATE step SET at = at - :s * interval '1 second'", s=seconds)


def told(desks: Desks, txid: int) -> list[str]:
    """Run the role, and return what it wrote down of a flow."""
    Budgets(desks.bank.broker.kernel).run_once()
    history = desks.bank.broker.kernel.store.overview.history(txid)
    return [each.why for each in history if each.what == OVER]


def test_a_step_that_holds_its_locks_for_too_long_is_told_of_once(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"], budget={"mortgage": timedelta(minutes=10)})
    desks.pay(txid, "debit", -10, on="current")
    desks.pay(txid, "audit", 1, lane="mortgage")
    desks.write(txid, "credit", 10, on="mortgage")  # it holds nothing
    assert told(desks, txid) == []
    held_for(desks, 61)
    (why,) = told(desks, txid)
    assert re.fullmatch(r"step 'debit' has held its locks in 'current' for \d+ s, its budget is 60 s", why)
    held_for(desks, 600)
    assert "step 'audit' has held its locks in the lane of 'mortgage'" in told(desks, txid)[1]
    assert len(told(desks, txid)) == 2


def test_what_is_settled_holds_nothing_any_more(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    desks.pay(txid, "audit", 1, lane="mortgage")
    desks.commit(txid, "mortgage")
    flows = desks.bank.broker.kernel.store.flows
    assert [each.resource for each in flows.held()] == ["current"]
    desks.end(txid)
    held_for(desks, 3_600)
    assert (flows.held(), told(desks, txid)) == ([], [])


def test_the_doctor_names_where_locks_are_held_for_too_long(desks: Desks) -> None:
    txid = desks.begin("current")
    desks.pay(txid, "debit", -10, on="current")
    store = desks.bank.broker.kernel.store
    assert isinstance(store, Store)
    assert holding(store).severity is Severity.OK
    held_for(desks, 61)
    found = holding(store)
    assert (found.severity, found.found) == (
        Severity.WARNING,
        "steps of flows hold locks for longer than their budget: 1 in current",
    )
    (held,) = store.flows.held()
    assert (held.held, held.over) == (1, 1)
    assert held.oldest is not None
    assert held.oldest >= timedelta(seconds=61)
