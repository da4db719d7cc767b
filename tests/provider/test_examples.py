"""The example DAGs: every outcome that their forms offer."""

from __future__ import annotations

import ast
import json
from datetime import timedelta
from pathlib import Path

import pytest

import txsaga
from tests.provider.examples import FOLDER, example
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.provider.connections import AMBIENT
from txsaga.wiring.connecting import open_store


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_a_dag_file_is_found_by_airflow_and_holds_no_logic(file: Path) -> None:
    source = file.read_text("utf-8")
    assert {"airflow", "dag"} <= {word for word in ("airflow", "dag") if word in source.lower()}, "not parsed"
    logic = (ast.If, ast.For, ast.While, ast.Try)
    assert not [each.lineno for each in ast.walk(ast.parse(source)) if isinstance(each, logic)]


@pytest.mark.req("CARD-02")
def test_an_order_is_booked_and_told_or_neither(house: House) -> None:
    house.postgres("shop")
    house.execute("shop", "DROP TABLE IF EXISTS orders")
    house.topic("orders")
    dag = example("orders_half_message")
    assert house.run(dag, {"pieces": 2}).state == "success"
    assert house.run(dag, {"pieces": 0}).state == "failed"
    assert house.rows("shop", "SELECT item, pieces FROM orders") == [("lamp", 2)]
    assert [json.loads(each) for each in house.seen("orders")] == [{"item": "lamp", "pieces": 2}]


@pytest.mark.req("CARD-06")
def test_a_trip_is_booked_or_cancelled(house: House) -> None:
    places = ("travel_flight", "travel_hotel", "travel_car")
    for name in places:
        house.postgres(name)
        house.execute(name, "DROP TABLE IF EXISTS booking")
    house.topic("trips")
    dag = example("saga_travel")
    booked = house.run(dag)
    assert booked.state == "success", booked.tasks
    lost = house.run(dag, {"fault": "payment"})
    assert lost.state == "failed"
    for name in places:
        runs = {row[0] for row in house.rows(name, "SELECT run FROM booking")}
        assert runs == {booked.id}, name
    assert [json.loads(each) for each in house.seen("trips")] == [{"run": booked.id}]


@pytest.mark.req("IBM-43")
def test_readings_are_done_exactly_if_their_alarms_are_seen(house: House) -> None:
    house.topic("readings", type="normal")
    house.topic("alarms")
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        broker.create_group("alarm-app", first_retry=timedelta(milliseconds=1))
        broker.producer("sensors").send_many("readings", [b"95", b"99"])
    house.seen("readings")
    dag = example("consume_transform_produce")
    lost = house.run(dag, {"fault": "after"})
    assert lost.state == "failed"
    assert lost.tasks["take"] == "success", lost.tasks
    assert house.seen("alarms") == []
    done = house.run(dag, {"fault": "none"})  # said: in one process Airflow keeps the last value as the default
    assert done.state == "success", done.tasks
    assert sorted(json.loads(each)["alarm"] for each in house.seen("alarms")) == ["95", "99"]
    assert [each["attempts"] for each in done.xcom("take")] == [2, 2]
    empty = house.run(dag, {"fault": "none"})
    assert (empty.state, empty.tasks["take"]) == ("success", "skipped")


def test_a_cluster_publishes_to_whom_its_policy_chooses(house: House) -> None:
    stores = {}
    for name in ("east", "west", "north"):
        stores[name] = house.home_url.rpartition("namespace=")[0] + f"namespace={fresh_name(name)}"
        open_store(stores[name]).close()
        house.connect(f"broker_{name}", conn_type="txsaga", extra={"url": stores[name]})
        with txsaga.connect(stores[name], roles=False, answering=False, env={}) as broker:
            broker.create_topic("orders", type="transaction")
    run = house.run(example("cluster_publish"))
    assert run.state == "success", run.tasks
    (chosen,) = run.xcom("publish")["brokers"]
    AMBIENT.close()
    house.home_url = stores[chosen]
    assert house.seen("orders") == [b"1", b"2", b"3"]
