"""Taking messages for a flow: what the next tasks get of them, and how much at once."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import task

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, FlowRefused
from txsaga.provider import ConsumeStep, message_flow
from txsaga.store.store import Store


@pytest.fixture
def broker(house: House) -> Iterator[Broker]:
    """Give the store of the house."""
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        yield broker


def sent(broker: Broker, topic: str, *messages: dict[str, Any]) -> None:
    """Send messages, and have them delivered."""
    for each in messages:
        broker.producer("sender").send(topic, each.pop("body"), **each)
    for role in broker.roles():
        role.run_once()


def lives(broker: Broker) -> set[int]:
    """Return the transactions that were begun."""
    store = broker.kernel.store
    assert isinstance(store, Store)
    with store.engine.connect() as connection:
        return set(connection.exec_driver_sql(f"SELECT txid FROM {store.namespace}.tx").scalars())


def taking(topic: str, **options: Any) -> Any:
    """Make a flow that takes messages."""

    @message_flow(schedule=None)
    def takes() -> None:
        ConsumeStep(task_id="take", topics=topic, consumer_group="takers", **options)

    return takes()


def test_the_next_task_gets_all_that_a_message_is(house: House, broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("taken"), "normal", queues=1).name
    raw = bytes(range(256))
    first = {"body": "ä".encode(), "key": "k", "tag": "t", "headers": {"by": "ann"}}
    sent(broker, topic, first, {"body": raw})
    run = house.run(taking(topic))
    assert run.state == "success", run.tasks
    text, binary = run.xcom("take")
    assert text.pop("id").strip()
    assert text == {
        "topic": topic,
        "key": "k",
        "tag": "t",
        "headers": {"by": "ann"},
        "attempts": 1,
        "body": "ä",
    }
    assert (binary["encoding"], base64.b64decode(binary["body"])) == ("base64", raw)
    assert broker.consumer("takers", [topic]).receive() == []


@pytest.mark.req("IBM-05")
def test_a_message_is_one_transaction_that_begin_opens_and_end_closes(house: House, broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("timed"), "normal", queues=1).name
    sent(broker, topic, {"body": b"x"})
    overview, opened = broker.kernel.store.overview, list[object]()

    @message_flow(schedule=None)
    def timed() -> None:
        take = ConsumeStep(task_id="take", topics=topic, consumer_group="timers")

        @task
        def look(txid: str) -> None:
            opened.append(overview.decisions([int(txid)]))

        take >> look("{{ ti.xcom_pull('begin')['txid'] }}")

    before = lives(broker)
    run = house.run(timed())
    assert run.state == "success", run.tasks
    txid = run.xcom("begin")["txid"]
    assert lives(broker) - before == {txid}
    assert opened == [{}]
    assert overview.decisions([txid]) == {txid: Decision.COMMIT}


def test_what_has_no_room_is_left_for_the_next_run_uncounted(house: House, broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("large"), "normal", queues=1).name
    sent(broker, topic, *({"body": b"x" * 1000, "key": str(n)} for n in range(5)))
    dag = taking(topic, max_bytes=3000)
    runs = [house.run(dag) for _ in range(3)]
    assert [[each["key"] for each in run.xcom("take")] for run in runs] == [["0", "1"], ["2", "3"], ["4"]]
    assert {each["attempts"] for run in runs for each in run.xcom("take")} == {1}


def test_a_batch_is_no_larger_than_it_was_asked_for(house: House, broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("many"), "normal", queues=1).name
    sent(broker, topic, *({"body": b"x"} for _ in range(70)))
    dag = taking(topic, batch=65)
    assert [len(house.run(dag).xcom("take")) for _ in range(2)] == [65, 5]
    with pytest.raises(ConfigError, match="give 1 or more"):
        ConsumeStep(task_id="take", topics=topic, batch=0)


def test_a_message_that_alone_is_too_large_is_refused_and_not_lost(
    house: House, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = broker.create_topic(fresh_name("huge"), "normal", queues=1).name
    sent(broker, topic, {"body": b"x" * 5000})
    run = house.run(taking(topic, max_bytes=3000))
    assert (run.tasks["take"], run.tasks["end"]) == ("failed", "failed")
    told = capfd.readouterr()
    assert "has 5000 bytes, and step 'take' hands on no more than 3000 in all" in told.out + told.err
    assert [each.attempts for each in broker.consumer("takers", [topic]).receive()] == [1]


def test_a_task_that_takes_messages_is_not_mapped() -> None:
    @message_flow(schedule=None)
    def taking_side_by_side() -> None:
        ConsumeStep.partial(task_id="take", consumer_group="takers").expand(topics=["one", "two"])

    with pytest.raises(FlowRefused, match=r"task 'take' takes messages and can't be mapped: .*; raise batch="):
        taking_side_by_side()
