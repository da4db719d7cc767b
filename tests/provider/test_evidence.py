"""Sensors and connections: evidence behind Airflow connections, their names, and how a sensor ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent
from sqlalchemy import create_engine, text

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import ConfigError
from txsaga.provider import CheckBackSensor, DecisionSensor, FlowBegin, SqlStep, message_flow
from txsaga.provider.sensors import AnswerArg
from txsaga.provider.triggers import WaitTrigger
from txsaga.provider.waits import WaitAnswer, wait_of

PATIENT: dict[str, Any] = {"interval": 0.1, "look_every": 0.05, "max_checks": 1000, "timeout": 60}


@pytest.fixture
def booked(house: House) -> Iterator[str]:
    """Give a topic, and a database behind a connection whose name has a hyphen."""
    url = house.database("pg_evidence")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS booking"))
        connection.execute(text("CREATE TABLE booking (what text)"))
    house.connect("pg-evidence", conn_type="postgres", extra={"sqlalchemy_url": url})
    yield house.topic(fresh_name("booked"))
    engine.dispose()


def left_after_its_work(broker: Broker, house: House, topic: str) -> int:
    """Leave a transaction whose local work is committed, and whose process died then."""
    engine = create_engine(house.database("pg_evidence"))
    broker.register("pg_evidence", engine)
    tx = broker.producer("booker", checker=lambda question: LocalState.UNKNOWN).transaction(key="b").__enter__()
    tx.send(topic, b"booked")
    with tx.local("pg_evidence") as connection:
        connection.execute(text("INSERT INTO booking VALUES ('x')"))
    assert tx.txid is not None
    engine.dispose()
    return tx.txid


@pytest.mark.req("CARD-05")
@pytest.mark.parametrize("deferrable", [True, False])
def test_check_back_reads_evidence_behind_an_airflow_connection(house: House, booked: str, deferrable: bool) -> None:
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        txid = left_after_its_work(broker, house, booked)
    with DAG("asks", schedule=None) as dag:
        CheckBackSensor(task_id="ask", transaction=txid, deferrable=deferrable, poke_interval=0.1, **PATIENT)
    run = house.run(dag)
    assert run.state == "success", run.tasks
    assert run.xcom("ask")["state"] == "COMMITTED"
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        assert broker.kernel.store.overview.decisions([txid]) == {txid: Decision.COMMIT}
    assert house.seen(booked) == [b"booked"]


def test_a_flow_works_behind_a_connection_with_a_hyphen_in_its_name(house: House, booked: str) -> None:
    @message_flow(resources={"one": "pg-evidence"}, coordinated=True, schedule=None)
    def hyphened() -> None:
        SqlStep(task_id="note", on="one", sql="INSERT INTO booking VALUES ('y')")

    run = house.run(hyphened())
    assert run.state == "success", run.tasks
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        assert "pg_evidence" in {each.name for each in broker.kernel.store.registry.enlisted()}
    with pytest.raises(ConfigError, match="'pg-a' and 'pg_a' are both 'pg_a' in the store: rename one"):
        FlowBegin(task_id="begin", resources=["pg-a", "pg_a"])


@pytest.mark.parametrize("skips", [True, False])
def test_a_sensor_that_may_fail_softly_is_skipped_in_the_triggerer_too(skips: bool) -> None:
    made = DecisionSensor(task_id="wait", transaction=7, soft_fail=skips)
    assert made.start_trigger_args.trigger_kwargs is not None
    trigger = WaitTrigger(**made.start_trigger_args.trigger_kwargs)
    again = WaitTrigger(**trigger.serialize()[1])
    answer = {wait_of("decision", {"transaction": 7}): WaitAnswer(good=False, told="no", value={"txid": 7})}

    async def stream() -> AsyncIterator[Any]:
        yield answer

    async def ended() -> Any:
        return await anext(aiter(again.filter_shared_stream(stream())))

    event = asyncio.run(ended())
    assert isinstance(event, TaskSkippedEvent if skips else TaskFailedEvent)


def test_the_output_of_a_sensor_is_a_dict_also_where_airflow_hands_on_a_text() -> None:
    class Ti:
        """A task that reads."""

        def __init__(self, handed_on: object) -> None:
            self.handed_on = handed_on

        def xcom_pull(self, **asked: object) -> object:
            return self.handed_on

    with DAG("reads", schedule=None):
        output = DecisionSensor(task_id="wait", transaction=7).output

        @task
        def reads(answer: dict[str, Any]) -> int:
            return int(answer["txid"])

        reads(output)  # type: ignore[arg-type]
    assert isinstance(output, AnswerArg)
    for handed_on in ('{"txid": 7, "state": "COMMITTED"}', {"txid": 7, "state": "COMMITTED"}):
        assert output.resolve({"ti": Ti(handed_on)}) == {"txid": 7, "state": "COMMITTED"}
    assert wait_of("decision", {"transaction": '{"txid": 8}'}).transaction == "8"


def test_what_is_parked_of_one_group_is_found_behind_a_hundred_of_others(house: House, booked: str) -> None:
    from txsaga.provider.waits import MOST_SHOWN, StorePoll

    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        others = [parked(broker, "others", booked) for _ in range(MOST_SHOWN + 1)]
        mine = parked(broker, "mine", booked)
        one, any_of_them = (wait_of("parked", {"group": group}) for group in ("mine", ""))
        found = StorePoll(broker).look([one, any_of_them])
        assert found[one].value["parked"] == [mine]
        assert set(found[any_of_them].value["parked"]) <= {*others, mine}


def parked(broker: Broker, group: str, topic: str) -> int:
    """Leave a half message of a group that nobody can decide."""
    producer = broker.producer(group, checker=lambda question: LocalState.UNKNOWN)
    receipt = producer.prepare_now(topic, b"x")
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.park(receipt.txid, "out of checks")
    return receipt.txid
