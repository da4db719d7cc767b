"""The alerts of alerts.yml are answered by the console as Prometheus would answer them."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.console.conftest import Enter
from tests.console.test_elsewhere import NOWHERE
from tests.scene.fake_store import FakeStore
from tests.scene.shop import Shop
from txsaga.console.alarms import FILE, Labels, Values, alarms, holding
from txsaga.console.people import Rank
from txsaga.inspect.overview_store import Overview
from txsaga.store.connection import make_engine, parse_url

LEFT = {
    *("TxsagaRoleFailing", "TxsagaChecksUnanswered", "TxsagaCheckersUnsure", "TxsagaGroupLagGrowing"),
    *("TxsagaResourceUnreachable", "TxsagaEarlierBranches"),
}
"""What one look at a store can't answer."""


def test_every_alert_of_the_file_is_listed_and_all_but_these_are_answered(shop: Shop) -> None:
    rules = import_module("yaml").safe_load(FILE.read_text("utf-8"))["groups"][0]["rules"]
    found = alarms(shop.store)
    assert {(each.name, each.severity, each.lasts) for each in found} == {
        (rule["alert"], rule["labels"]["severity"], rule.get("for")) for rule in rules
    }
    assert {each.name for each in found if each.on is None} == LEFT
    assert [each for each in found if each.on] == []


def test_an_alert_that_holds_says_where(shop: Shop, enter: Enter) -> None:
    shop.broker.create_group("billing", max_attempts=1)
    shop.producer().send("news", b"broken")
    shop.deliver()
    (message,) = shop.broker.consumer("billing", ["news"]).receive()
    message.nack(cause="it is broken")
    client = enter(Rank.VIEWER)
    (alert,) = [each for each in client.get("/api/v1/alarms").json()["alerts"] if each["on"]]
    assert (alert["name"], alert["on"]) == (
        "TxsagaDeadLetters",
        ["Group billing has dead letters; see `txsaga dlq list`."],
    )
    page = client.get("/alarms").text
    assert "Group billing has dead letters" in page
    assert "not known here" in page


def test_of_a_store_that_is_away_only_that_is_known(shop: Shop) -> None:
    store, real = FakeStore(shop.store), shop.store
    store.overview = Overview(make_engine(*parse_url(NOWHERE)), "txsaga", real.registry.identity, real.log)
    first, *others = alarms(store)
    assert (first.name, first.on) == ("TxsagaStoreDown", (first.summary,))
    assert {each.on for each in others} == {None}


A: Labels = (("group", "a"),)
B: Labels = (("group", "b"),)
VALUES: Values = {
    "txsaga_lag": {A: 5.0, B: 0.0},
    "txsaga_retrying": {A: 0.0, B: 2.0},
    "txsaga_members": {A: 1.0, B: 0.0},
}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("txsaga_lag > 1", [A]),
        ("txsaga_lag > 5", []),
        ("txsaga_lag + txsaga_retrying > 0", [A, B]),
        ("txsaga_lag + txsaga_retrying > 0 and txsaga_members == 0", [B]),
        ("txsaga_unknown > 0", None),
        ("txsaga_lag > 1 and deriv(txsaga_lag[15m]) > 0", None),
        ('increase(txsaga_lag{answer="NO"}[5m]) > 3', None),
    ],
)
def test_an_expression_is_read_as_prometheus_reads_it(expression: str, found: object) -> None:
    assert holding(expression, VALUES) == found
