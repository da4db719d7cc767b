"""The section [txsaga] of Airflow's configuration: what it says counts where a DAG says nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.errors import ConfigError
from txsaga.provider import (
    DecisionSensor,
    EngineRoles,
    FlowBegin,
    HalfMessagePrepare,
    Publish,
    TxSagaHook,
    message_flow,
    messages_asset,
    publish,
)
from txsaga.provider.options import OPTIONS
from txsaga.provider.triggers import WakeUpTrigger


def said(monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
    """Say options as anybody does."""
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__TXSAGA__{name.upper()}", value)


def test_without_a_word_the_defaults_count() -> None:
    assert {each.name: each.text() for each in OPTIONS} == {each.name: each.default for each in OPTIONS}
    begin = FlowBegin(task_id="begin")
    assert (begin.store, begin.lease, begin.budget) == ("txsaga_default", timedelta(minutes=1), timedelta(minutes=1))


def test_what_the_section_says_counts_unless_a_task_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, conn_id="orders", look_every="2.5", flow_lease="300", flow_budget="90")
    begin, other = FlowBegin(task_id="a"), FlowBegin(task_id="b", store="here", lease=timedelta(hours=1))
    assert (begin.store, begin.lease, begin.budget) == ("orders", timedelta(minutes=5), timedelta(seconds=90))
    assert (other.store, other.lease) == ("here", timedelta(hours=1))
    sensor = DecisionSensor(task_id="c", transaction="1")
    assert (sensor.store, sensor.look_every) == ("orders", 2.5)
    assert DecisionSensor(task_id="d", transaction="1", look_every=0.5).look_every == 0.5
    half = HalfMessagePrepare(task_id="f", topic="t", checker="tests.provider.checkers:never")
    stores = [Publish(task_id="e", topic="t"), half, EngineRoles(task_id="g")]
    assert {each.store for each in stores} == {"orders"}  # type: ignore[attr-defined]
    assert TxSagaHook().txsaga_conn_id == "orders"
    assert messages_asset("t", group="g").uri == "txsaga://orders/t/g"
    assert WakeUpTrigger(topic="t", group="g").shared_stream_key() == ("txsaga", "orders", 2.5)


@pytest.mark.parametrize(
    ("name", "value"), [("flow_lease", "soon"), ("flow_budget", "0"), ("look_every", "-1"), ("look_every", "nan")]
)
def test_a_value_that_is_none_is_told_with_its_option(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    said(monkeypatch, **{name: value})
    with pytest.raises(ConfigError, match=rf"\[txsaga\] {name} is '{value}'; write a number from"):
        FlowBegin(task_id="a") if name != "look_every" else DecisionSensor(task_id="a", transaction="1")


def test_a_flow_works_in_the_store_that_the_section_names(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, conn_id="another")
    house.connect("another", conn_type="txsaga", extra={"url": house.home_url})
    house.connect("txsaga_default", conn_type="txsaga", host="127.0.0.1", port=1, schema="none")
    topic = house.topic(fresh_name("section"))

    @message_flow(schedule=None)
    def by_section() -> None:
        publish(topic, "x")

    run = house.run(by_section())
    assert run.state == "success", run.tasks
    assert run.xcom("begin")["store"] == "another"
    assert house.seen(topic) == [b"x"]
