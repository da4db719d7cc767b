"""The first and the last task of a flow: how often they are tried, and how they are named."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("airflow")

from airflow.sdk import DAG

from tests.provider.house import House
from txsaga.errors import FlowRefused
from txsaga.provider import FlowBegin, FlowEnd, Publish, message_flow, step
from txsaga.provider.reference import key_of, own_key_of, run_name_of

OFTEN, TEN_SECONDS = 5, timedelta(seconds=10)


def test_begin_and_end_are_tried_again_unless_a_dag_says_otherwise() -> None:
    with DAG("tried", schedule=None):
        for task in (FlowBegin(task_id="begin"), FlowEnd(task_id="end")):
            assert (task.retries, task.retry_delay) == (OFTEN, TEN_SECONDS)
        assert FlowEnd(task_id="said", retries=1).retries == 1
    with DAG("told", schedule=None, default_args={"retries": 2, "retry_delay": timedelta(minutes=3)}):
        for task in (FlowBegin(task_id="begin"), FlowEnd(task_id="end")):
            assert (task.retries, task.retry_delay) == (2, timedelta(minutes=3))
        assert FlowBegin(task_id="said", retries=0).retries == 0


def test_an_end_that_finds_no_store_is_tried_again_and_commits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from txsaga.errors import StoreUnavailable
    from txsaga.provider.operators import flow, task

    topic, tries = house.topic("held"), list[int]()
    opened = task.opened

    def away_once(reference: object) -> object:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailable("the store is away")
        return opened(reference)  # type: ignore[arg-type]

    monkeypatch.setattr(flow, "opened", away_once)

    @message_flow(schedule=None, default_args={"retry_delay": timedelta(0)})
    def held() -> None:
        Publish(task_id="tell", topic=topic, body="x")

    run = house.run(held())
    assert run.state == "success", run.tasks
    assert house.seen(topic) == [b"x"]


def test_two_airflows_on_one_store_do_not_share_keys_or_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ti = SimpleNamespace(dag_id="bank", run_id="manual__1", task_id="begin", map_index=-1)
    other = SimpleNamespace(dag_id="bank", run_id="manual__1", task_id="tell", map_index=2)
    monkeypatch.delenv("TXSAGA_AIRFLOW_URL", raising=False)
    for name in ("north", "south"):
        monkeypatch.setenv("TXSAGA_AIRFLOW_NAME", name)
        assert key_of(ti) == f"{name}/manual__1"
        assert key_of(other) == own_key_of(other) == f"{name}/manual__1/tell[2]"
        assert run_name_of(ti) == f"airflow@{name}:bank/manual__1"
    monkeypatch.delenv("TXSAGA_AIRFLOW_NAME")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://flows.example/a")
    assert run_name_of(ti) == "airflow@flows.example-a:bank/manual__1"
    monkeypatch.delenv("AIRFLOW__API__BASE_URL")
    assert (key_of(ti), run_name_of(ti)) == ("manual__1", "airflow:bank/manual__1")


@pytest.mark.parametrize("name", ["begin", "seal", "end"])
def test_a_task_of_a_name_that_the_flow_needs_is_refused_in_one_line(name: str) -> None:
    @message_flow(schedule=None)
    def taken() -> None:
        step.sql(name, "DELETE FROM x", on="home")

    with pytest.raises(FlowRefused, match=f"task name '{name}' is reserved in a flow: give the task another"):
        taken()
