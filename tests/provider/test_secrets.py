"""What lies in Airflow's database and logs is no key to anything; and where a transaction can be looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Connection

from tests.provider.house import House
from txsaga.provider import FlowBegin, FlowEnd, HalfMessageCommit, HalfMessagePrepare, LocalTransaction


def test_what_names_a_half_message_is_no_key_to_it(house: House) -> None:
    topic = house.topic("secret")
    with DAG("secretive", schedule=None) as dag:
        half = HalfMessagePrepare(task_id="half", topic=topic, checker="tests.provider.checkers:never", body="x")
        half >> HalfMessageCommit(task_id="commit", half=half.output)
    run = house.run(dag)
    assert run.state == "success", run.tasks
    assert run.xcom("half").keys() == {"txid", "id", "group", "store"}
    assert house.seen(topic) == [b"x"]


def test_a_transaction_that_is_no_half_message_is_not_decided_by_a_task(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    with DAG("mistaken_half", schedule=None) as dag:
        begin = FlowBegin(task_id="begin")
        named: dict[str, Any] = {"txid": "{{ ti.xcom_pull('begin')['txid'] }}", "group": "mistaken_half"}
        begin >> HalfMessageCommit(task_id="commit", half={**named, "store": "txsaga_default"})
        unknown = {**named, "txid": 999_999_999, "store": "txsaga_default"}
        HalfMessageCommit(task_id="unknown", half=unknown)
    run = house.run(dag)
    assert (run.tasks["commit"], run.tasks["unknown"]) == ("failed", "failed")
    told = capfd.readouterr()
    assert "is not a half message; the process that began it decides it" in told.out + told.err
    assert "transaction 999999999 is not in this store" in told.out + told.err


def test_passwords_inside_urls_of_extras_are_hidden_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from txsaga.provider.connections import database_url, store_url

    hidden: list[object] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", hidden.append)
    extra = '{"sqlalchemy_url": "postgresql+psycopg://u:pa%40ss@h/db"}'
    assert database_url(Connection(conn_id="a", conn_type="x", extra=extra)).endswith("@h/db")
    store = Connection(conn_id="b", conn_type="txsaga", extra='{"url": "postgresql://u:stored@h/db"}')
    assert store_url(store) == "postgresql://u:stored@h/db"
    assert {"pa@ss", "pa%40ss", "stored"} <= {each for each in hidden if isinstance(each, str)}
    odd = Connection(conn_id="c", conn_type="txsaga", extra='{"url": "no url at all"}')
    assert store_url(odd) == "no url at all"


def test_a_task_that_has_a_transaction_links_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.xcom import XCom

    with DAG("linked", schedule=None):
        tasks = [
            FlowBegin(task_id="begin"),
            FlowEnd(task_id="end"),
            HalfMessagePrepare(task_id="half", topic="t", checker="tests.provider.checkers:never"),
            LocalTransaction(task_id="local", topic="t", connection="pg", sql="SELECT 1"),
        ]
    key: Any = SimpleNamespace(dag_id="linked", run_id="r", task_id="begin", map_index=-1)
    monkeypatch.setattr(XCom, "get_value", lambda **asked: {"txid": 7, "id": "5a-7"})
    for task in tasks:
        (link,) = task.operator_extra_links
        assert link.name == "Transaction"
        assert link.get_link(task, ti_key=key) == "/txsaga/transactions/5a-7"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/below/")
    assert link.get_link(task, ti_key=key) == "/below/txsaga/transactions/5a-7"


def test_an_end_that_rolled_back_links_to_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.xcom import XCom

    with DAG("rolled_back", schedule=None):
        end = FlowEnd(task_id="end", flow="opened")
    key: Any = SimpleNamespace(dag_id="rolled_back", run_id="r", task_id="end", map_index=-1)
    left: dict[str, object] = {}
    monkeypatch.setattr(XCom, "get_one", lambda **asked: left.get(asked["task_id"]))
    (link,) = end.operator_extra_links
    assert link.get_link(end, ti_key=key) == ""
    left["opened"] = {"txid": 7, "id": "5a-7"}
    assert link.get_link(end, ti_key=key) == "/txsaga/transactions/5a-7"
