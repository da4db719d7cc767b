"""Sensors: what they wait for, how they end, and that they wait on one stream without a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("airflow")

import txsaga
from tests.provider.checkers import PLACE, hold, third_time
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import ConfigError, StoreUnavailable
from txsaga.provider.waits import StorePoll, Wait, WaitAnswer, WaitKind, each_answered, wait_of
from txsaga.rocketmq import TransactionMQProducer
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    """Give the broker of a store of its own."""
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        yield broker


def half(broker: Broker, topic: str | None = None) -> int:
    """Leave a half message in doubt."""
    name = topic or broker.create_topic(fresh_name("half"), "transaction", queues=1).name
    producer = TransactionMQProducer(broker, "sensed", checker=lambda question: LocalState.UNKNOWN)
    sent = producer.send_message_in_transaction(
        txsaga.Message(topic=name, body=b"x"), executor=lambda *given: LocalState.UNKNOWN
    )
    store = broker.kernel.store
    assert isinstance(store, Store)
    with store.engine.begin() as connection:  # so that it may be asked about
        connection.exec_driver_sql(f"UPDATE {store.namespace}.half SET born = born - interval '1 minute'")
    return broker.identity.own(sent.transaction_id)


def wait(kind: WaitKind, **target: object) -> Wait:
    return wait_of(kind, target)


def asked(kind: WaitKind, broker: Broker, **target: object) -> WaitAnswer | None:
    found = wait(kind, **target)
    return StorePoll(broker).look([found]).get(found)


@pytest.mark.req("CARD-05")
def test_unknown_twice_then_commit_is_three_checks_and_success(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "asked"))
    txid, clock = half(broker), iter(range(0, 1000, 60))
    looking = StorePoll(broker, clock=lambda: float(next(clock)))
    one = wait(WaitKind.CHECK_BACK, transaction=txid, checker="tests.provider.checkers:third_time", interval=1)
    rounds = [looking.look([one]) for _ in range(3)]
    assert rounds[:2] == [{}, {}]
    assert rounds[2][one].good
    assert rounds[2][one].value["checks"] == 3
    assert len((tmp_path / "asked").read_text().splitlines()) == 3
    assert broker.kernel.store.overview.decisions([txid])


def test_a_checker_is_asked_no_oftener_than_its_interval(broker: Broker) -> None:
    one = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker="tests.provider.checkers:never", max_checks=2)
    now = [0.0]
    looking = StorePoll(broker, clock=lambda: now[0])
    assert [looking.look([one]) for _ in range(10)] == [{}] * 10
    now[0] = 61.0
    answer = looking.look([one])[one]
    assert not answer.good
    assert "not decided after 2 checks" in answer.told


def test_what_the_checker_refuses_is_rolled_back_and_fails(broker: Broker) -> None:
    txid = half(broker)
    answer = asked(WaitKind.CHECK_BACK, broker, transaction=txid, checker="tests.provider.checkers:refuse")
    assert answer is not None
    assert (answer.good, answer.value["state"]) == (False, "ROLLED_BACK")


@pytest.mark.rule("R1")
def test_an_open_transaction_is_left_alone(broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("open"), "transaction").name
    producer = broker.producer("open", checker=lambda question: LocalState.UNKNOWN)
    with producer.transaction(key="k") as tx:
        tx.send(topic, b"x")
        assert asked(WaitKind.CHECK_BACK, broker, transaction=tx.txid, checker="tests.provider.checkers:refuse") is None
    answer = asked(WaitKind.CHECK_BACK, broker, transaction=tx.txid)
    assert answer is not None
    assert answer.good


def test_an_unknown_transaction_ends_its_own_wait_and_no_other(broker: Broker) -> None:
    good, bad = half(broker), wait(WaitKind.CHECK_BACK, transaction=999_999_999)
    one = wait(WaitKind.CHECK_BACK, transaction=good, checker="tests.provider.checkers:refuse")
    found = StorePoll(broker).look([bad, one])
    assert "not in this store" in found[bad].told
    assert found[one].value["state"] == "ROLLED_BACK"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing be waited for long, and let go of what hangs at the end."""
    for name, seconds in (("PROMPT", 0.5), ("LATE", 0.5), ("LONGEST", 1.0)):
        monkeypatch.setattr(f"txsaga.provider.waits.{name}", seconds)
    yield
    hold.set()
    for thread in threading.enumerate():
        if thread.name == "txsaga-asking":
            thread.join(30)


def test_a_checker_that_hangs_ends_its_own_wait_and_no_other(
    broker: Broker, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.provider.waits.AT_ONCE", 1)
    hangs = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker="tests.provider.checkers:hang")
    good = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker="tests.provider.checkers:refuse")
    looking, found = StorePoll(broker), dict[Wait, WaitAnswer]()
    for _ in range(10):
        found |= looking.look([each for each in (hangs, good) if each not in found])
    assert found[good].value["state"] == "ROLLED_BACK"
    assert "not come to an end within 1 s" in found[hangs].told


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("tests.provider.raising:checker", "RuntimeError: the bank is closed"),
        ("tests.provider.checkers:leave", "SystemExit: 3"),
        ("tests.provider.checkers:nobody", "can't be loaded"),
    ],
)
def test_a_checker_that_can_not_be_asked_ends_its_own_wait_and_no_other(broker: Broker, named: str, told: str) -> None:
    bad = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker=named)
    good = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker="tests.provider.checkers:refuse")
    found = StorePoll(broker).look([bad, good])
    assert told in found[bad].told
    assert found[good].value["state"] == "ROLLED_BACK"


@pytest.mark.parametrize("kind", [WaitKind.DECISION, WaitKind.CHECK_BACK])
@pytest.mark.parametrize("named", ["9" * 30, "²", "-", "\0"])
def test_what_names_no_transaction_ends_its_own_wait_and_no_other(broker: Broker, kind: WaitKind, named: str) -> None:
    txid = half(broker)
    assert asked(WaitKind.CHECK_BACK, broker, transaction=txid, checker="tests.provider.checkers:refuse") is not None
    bad, good = wait(kind, transaction=named), wait(kind, transaction=txid)
    found = StorePoll(broker).look([bad, good])
    assert not found[bad].good
    assert found[good].value["state"] == "ROLLED_BACK"


def test_a_topic_that_no_store_can_name_ends_its_own_wait_and_no_other(broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("read"), queues=1).name
    broker.producer("sender").send(topic, b"x")
    Dispatcher(broker.kernel).run_once()
    bad = wait(WaitKind.MESSAGES, topic="\0", group="late")
    good = wait(WaitKind.MESSAGES, topic=topic, group="late")
    found = StorePoll(broker).look([bad, good])
    assert not found[bad].good
    assert found[good].good


def test_a_look_that_fails_ends_no_wait(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from txsaga.provider.triggers import watch_of

    watch, seen = watch_of(fresh_name("store"), 0.01), list[int]()
    one = wait(WaitKind.CHECK_BACK, transaction=half(broker), checker="tests.provider.checkers:refuse")
    look = StorePoll.look

    def failing(looking: StorePoll, waits: Collection[Wait]) -> Mapping[Wait, WaitAnswer]:
        seen.append(len(waits))
        if len(seen) == 1:
            raise KeyError("a mistake")
        return look(looking, waits)

    async def first() -> Mapping[Wait, WaitAnswer]:
        with watch.waiting(one):
            async for answers in watch.rounds(lambda: broker, 0.01):
                return answers
        raise AssertionError

    monkeypatch.setattr(StorePoll, "look", failing)
    assert asyncio.run(first())[one].value["state"] == "ROLLED_BACK"


@pytest.mark.req("BEYOND-4")
def test_two_hundred_waits_are_one_statement(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    decisions = broker.kernel.store.overview.decisions

    def counted(self: object, txids: Collection[int]) -> Mapping[int, Decision]:
        seen.append(len(txids))
        return decisions(txids)

    monkeypatch.setattr(type(broker.kernel.store.overview), "decisions", counted)
    assert StorePoll(broker).look([wait(WaitKind.DECISION, transaction=n) for n in range(1, 201)]) == {}
    assert seen == [200]


def test_messages_are_seen_until_a_group_has_read_them(broker: Broker) -> None:
    topic = broker.create_topic(fresh_name("topic"), queues=1).name
    assert asked(WaitKind.MESSAGES, broker, topic=topic, group="late") is None
    broker.producer("plain").send(topic, b"1")
    for role in broker.roles():
        role.run_once()
    answer = asked(WaitKind.MESSAGES, broker, topic=topic, group="late")
    assert answer is not None
    assert answer.value["messages"] == 1
    for message in broker.consumer("late", [topic]).receive():
        message.ack()
    assert asked(WaitKind.MESSAGES, broker, topic=topic, group="late") is None
    gone = asked(WaitKind.MESSAGES, broker, topic="nothing", group="late")
    assert gone is not None
    assert "txsaga topic create" in gone.told


def test_a_target_that_names_nothing_is_refused() -> None:
    nothings: list[object] = [None, "", {}, True]
    for nothing in nothings:
        with pytest.raises(ConfigError, match="names no transaction"):
            wait(WaitKind.DECISION, transaction=nothing)
    assert wait(WaitKind.DECISION, transaction={"txid": 7}).transaction == "7"


@pytest.mark.req("BEYOND-4")
def test_a_sensor_starts_in_the_triggerer_unless_a_task_must_fill_it_in() -> None:
    from txsaga.provider.sensors import CheckBackSensor, DecisionSensor

    assert DecisionSensor(task_id="a", transaction="{{ params.tx }}").start_from_trigger
    assert DecisionSensor(task_id="b", transaction=7).start_from_trigger
    assert not DecisionSensor(task_id="c", transaction="{{ ti.xcom_pull('begin') }}").start_from_trigger
    assert not DecisionSensor(task_id="d", transaction=7, deferrable=False).start_from_trigger
    named = CheckBackSensor(task_id="e", transaction=7, checker=third_time)
    assert named.target["checker"] == "tests.provider.checkers:third_time"
    with pytest.raises(ConfigError, match="other processes can't import it"):
        CheckBackSensor(task_id="f", transaction=7, checker=lambda question: None)


def test_triggers_of_a_store_share_one_stream_and_each_ends_its_own_task(broker: Broker) -> None:
    from airflow.triggers.base import TaskFailedEvent

    from txsaga.provider.triggers import WaitTrigger, watch_of

    good, bad = half(broker), half(broker)
    store = fresh_name("store")
    said = {good: "tests.provider.checkers:never", bad: "tests.provider.checkers:refuse"}
    triggers = [
        WaitTrigger(
            "check-back", {"transaction": txid, "checker": checker, "interval": 0, "max_checks": 1}, store, 0.01
        )
        for txid, checker in said.items()
    ]
    assert len({trigger.shared_stream_key() for trigger in triggers}) == 1

    async def both() -> list[object]:
        rounds = watch_of(store, 0.01).rounds(lambda: broker, 0.01)
        queues: list[asyncio.Queue[object]] = [asyncio.Queue() for _ in triggers]

        async def one(trigger: WaitTrigger, queue: asyncio.Queue[object]) -> object:
            async def stream() -> object:
                while True:
                    yield await queue.get()

            async for event in trigger.filter_shared_stream(stream()):  # type: ignore[arg-type]
                return event
            raise AssertionError

        tasks = [asyncio.create_task(one(*pair)) for pair in zip(triggers, queues, strict=True)]
        await asyncio.sleep(0)
        async for answers in rounds:
            for queue in queues:
                queue.put_nowait(answers)
            if len(answers) == 2:
                break
            await asyncio.sleep(0)
            if all(task.done() for task in tasks):
                break
        return list(await asyncio.wait_for(asyncio.gather(*tasks), 10))

    failed, refused = asyncio.run(both())
    assert isinstance(failed, TaskFailedEvent)
    assert isinstance(refused, TaskFailedEvent)


def test_a_dag_waits_for_a_decision(house: House) -> None:
    from airflow.sdk import DAG

    from txsaga.provider.sensors import CheckBackSensor, DecisionSensor

    open_store(house.home_url).close()
    topic = house.topic(fresh_name("waited"))
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        txid = half(broker, topic)
    with DAG("waits", schedule=None) as dag:
        ask = CheckBackSensor(
            task_id="ask", transaction=txid, checker="tests.provider.checkers:refuse", look_every=0.05, interval=0
        )
        poke = DecisionSensor(task_id="poke", transaction=txid, deferrable=False, trigger_rule="all_done")
        ask >> poke
    run = house.run(dag)
    assert run.tasks == {"ask": "failed", "poke": "failed"}
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        assert broker.kernel.store.overview.decisions([txid]) == {txid: Decision.ROLLBACK}


def test_an_asset_of_messages_fires_while_there_are_some_and_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.triggers.base import TriggerEvent

    from txsaga.provider.assets import messages_asset
    from txsaga.provider.triggers import WakeUpTrigger

    asset = messages_asset("orders", group="billing", every=0)
    assert asset.uri == "txsaga://txsaga_default/orders/billing"
    (watcher,) = asset.watchers
    made = WakeUpTrigger(**watcher.trigger.serialize()[1])
    one = wait(WaitKind.MESSAGES, topic="orders", group="billing", at_least=1)

    def answer(new: int) -> dict[Wait, WaitAnswer]:
        return {one: WaitAnswer(good=True, told="", value={"new": new})}

    async def fired(*rounds: dict[Wait, WaitAnswer]) -> int:
        async def stream() -> AsyncIterator[dict[Wait, WaitAnswer]]:
            for each in rounds:
                yield each

        events = [event async for event in made.filter_shared_stream(stream())]
        assert all(isinstance(event, TriggerEvent) for event in events)
        return len(events)

    assert asyncio.run(fired(answer(5), {}, answer(3), answer(1))) == 3
    assert asyncio.run(fired(answer(0), answer(0), answer(0))) == 1  # they only rest


def test_a_trigger_of_an_asset_opens_the_stream_that_others_share(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import aclosing

    from airflow.sdk import BaseHook

    from txsaga.provider.triggers import WakeUpTrigger

    async def nobody(name: str) -> str:
        return name

    monkeypatch.setattr(BaseHook, "aget_connection", nobody)
    monkeypatch.setattr("txsaga.provider.triggers._open", lambda *given: broker)
    made = WakeUpTrigger("orders", "billing", fresh_name("store"))

    async def first() -> object:
        async with aclosing(made.open_shared_stream(made.serialize()[1])) as stream:
            return await asyncio.wait_for(anext(stream), 0.5)

    with pytest.raises(TimeoutError):  # it looks, and nobody waits for anything
        asyncio.run(first())


def test_an_uri_that_names_no_topic_is_refused() -> None:
    from urllib.parse import urlsplit

    from airflow.sdk import Asset

    from txsaga.provider.assets import sanitize_uri

    with pytest.raises(ValueError, match="txsaga://CONNECTION/TOPIC/GROUP"):
        sanitize_uri(urlsplit("txsaga://store"))
    assert Asset(name="a", uri="txsaga://store/orders").uri


def test_a_store_that_becomes_unavailable_while_waits_are_asked_one_by_one_ends_none_of_them() -> None:
    waits = [wait(WaitKind.DECISION, transaction=str(number)) for number in (1, 2)]

    def answered(asked: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        if len(asked) > 1:
            raise ValueError("one of them can't be answered")
        if [*asked] == waits[:1]:
            return {}
        raise StoreUnavailable("it is gone")

    with pytest.raises(StoreUnavailable):
        each_answered(answered, waits)
