"""Mistakes of users: one clear line each, and no retry where none helps. And the event of a commit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import DAG, Asset

from tests.provider.house import House
from txsaga.provider import FlowBegin, FlowEnd, HalfMessageCommit, Publish, SqlStep, message_flow, publish, step

RETRIED = {"retries": 3, "retry_delay": timedelta(0)}


def test_what_no_retry_can_mend_fails_at_once(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    house.connect("web", conn_type="http", host="nowhere")
    with DAG("mistaken", schedule=None, default_args=RETRIED) as dag:
        FlowBegin(task_id="no_connection", resources=["nowhere"])
        FlowBegin(task_id="no_database", resources=["web"])
        FlowBegin(task_id="no_store", store="web")
        Publish(task_id="no_topic", topic="nowhere", mode="transactional")
        no_flow = Publish(task_id="no_flow", topic="nowhere")
        HalfMessageCommit(task_id="no_half", half={"txid": 1})
        begin = FlowBegin(task_id="begin", trigger_rule="all_done")
        no_flow >> begin >> SqlStep(task_id="no_resource", on="nowhere", sql="DELETE FROM x")
    run = house.run(dag)
    assert run.tasks.pop("begin") == "success"
    assert set(run.tasks.values()) == {"failed"}, run.tasks
    assert {name: tries for name, tries in run.tries().items() if tries != 1} == {}
    told = capfd.readouterr()
    said = told.out + told.err
    for line in (
        "Airflow connection 'nowhere' does not exist; create it under Admin, Connections, or set AIRFLOW_CONN_NOWHERE",
        "connection 'web' is of type 'http'; use one of mariadb, mysql, postgres, postgresql, sqlite",
        "connection 'web' is of type 'http'; a store has a connection of type 'txsaga'",
        "task 'begin' of this run has begun no flow",
        "half= is not a half message",
        "'nowhere' is not a resource of this flow",
    ):
        assert line in said, line


@pytest.mark.rule("R18")
@pytest.mark.parametrize("good", [True, False])
def test_an_asset_event_comes_exactly_with_the_commit_and_carries_its_transaction(house: House, good: bool) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    name = f"moved_{good}".lower()
    house.topic("told")

    @message_flow(dag_id=f"events_{good}".lower(), outlets=[Asset(name)], schedule=None)
    def events() -> None:
        told = publish("told", "x")
        if not good:
            told >> step.sql("bad", "DELETE FROM nowhere_at_all", on="home")

    run = house.run(events())
    txid = run.xcom("begin")["txid"]
    with create_session() as session:
        found = [each.extra for each in session.query(AssetEvent).filter_by(source_run_id=run.id)]
    assert [each["txid"] for each in found] == ([txid] if good else [])


@pytest.mark.req("IBM-49")
def test_a_flow_waits_for_a_store_that_is_down_at_its_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TXSAGA__STANDBY", "0")
    house.connect("late_store", conn_type="txsaga", host="127.0.0.1", port=1, schema="none")

    def comes_back(context: object) -> None:
        house.connect("late_store", conn_type="txsaga", extra={"url": house.home_url})

    with DAG("late", schedule=None, default_args=RETRIED) as dag:
        begin = FlowBegin(task_id="begin", store="late_store", on_retry_callback=comes_back)
        house.topic("late")
        begin >> Publish(task_id="tell", topic="late", body="x") >> FlowEnd(task_id="end")
    run = house.run(dag)
    assert run.state == "success", run.tasks
    assert run.tries()["begin"] == 2
    assert house.seen("late") == [b"x"]
