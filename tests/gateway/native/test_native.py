"""Half messages of a native RocketMQ as branches: kills, check-back, refusals, what official consumers get."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from threading import Event
from typing import Any, cast

import pytest
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer
from sqlalchemy import text

import txsaga
from tests.chaos.scenarios import AT_ONCE
from tests.gateway.calling import listening
from tests.gateway.native.dying import COMMITTED, MOMENTS
from tests.gateway.native.topics import RocketMQTopic
from tests.services.databases import fresh_name
from tests.services.free_port import free_port
from tests.services.rocketmq import QUICK, RocketMqServer, rocketmq_server
from txsaga import errors
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.core.message import Message
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.gateway import native, wire
from txsaga.gateway.access_keys import AccessKey
from txsaga.gateway.native import BRANCH, HalvesBranch, OutgoingHalves, RocketMQParticipant
from txsaga.gateway.proxy_client import ProxyClient
from txsaga.gateway.remoting import GIVEN_UP
from txsaga.gateway.status import Code
from txsaga.testing.checking import check_once
from txsaga.testing.participant_contract import new_branch
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
PATIENCE = 40.0
QUICKLY = 3.0
"""Seconds until the engine answers COMMIT: who began to finish is dead."""
ROOT = Path(__file__).parents[3]


def connected(url: str, topic: RocketMQTopic, **given: Any) -> Broker:
    return txsaga.connect(url, participants={"orders": topic.registered()}, env={}, **given)


@contextmanager
def engine(url: str, topic: RocketMQTopic, folder: Path) -> Iterator[None]:
    """Run `txsaga engine`, with the topic as a participant, in a process of its own."""
    place = f"{topic.server.endpoint!r}, topic={topic.name!r}, name_server={topic.server.name_server!r}, undecided=10"
    (folder / "shop.py").write_text(
        f"from txsaga.gateway import native\nnative.FINISH = {QUICKLY}\norders = native.RocketMQ({place})\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{folder}",
        "TXSAGA_URL": url,
        "TXSAGA_PARTICIPANT_ORDERS": "shop:orders",
    }
    process = subprocess.Popen([sys.executable, "-m", "txsaga.cli", "engine"], env=env)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def broker(home_url: str, topic: RocketMQTopic) -> Iterator[Broker]:
    open_store(home_url).close()
    with connected(home_url, topic, roles=False) as broker:
        broker.create_topic("news", "transaction", queues=1)
        yield broker


@pytest.fixture
def consumer(topic: RocketMQTopic) -> Iterator[Any]:
    """Give RocketMQ's official consumer of the topic, unchanged."""
    configuration = ClientConfiguration(topic.server.endpoint, Credentials())
    consumer = SimpleConsumer(configuration, fresh_name("readers"), {topic.name: FilterExpression()}, 2)
    consumer.startup()
    yield consumer
    consumer.shutdown()


def received(consumer: Any, count: int) -> list[str]:
    """Return the keys of what an official consumer gets: so many, and what comes within three more checks."""
    found, end = list[str](), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for message in consumer.receive(16, 15) or []:
            assert (message.tag, message.properties["color"]) == ("red", "blue")
            found += message.keys
            consumer.ack(message)
            if len(found) == count:
                end = time.monotonic() + 4
    return sorted(found)


@pytest.mark.kill
@pytest.mark.timeout(240)
@pytest.mark.req("IBM-40")
@pytest.mark.rule("R2", "R9")
def test_wherever_its_process_is_killed_consumers_get_each_committed_message_once(
    broker: Broker, home_url: str, topic: RocketMQTopic, consumer: Any, tmp_path: Path
) -> None:
    places = [home_url, topic.server.endpoint, topic.server.name_server, topic.name]
    started = {
        moment: subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.native.dying", moment, *places, moment], cwd=ROOT
        )
        for moment in MOMENTS
    }
    assert {moment: process.wait(60) for moment, process in started.items()} == dict.fromkeys(MOMENTS, -SIGKILL)
    let_leases_run_out(broker)
    with engine(home_url, topic, tmp_path):
        assert received(consumer, len(COMMITTED)) == sorted(COMMITTED)
        until(lambda: not held(broker))
        news = broker.stream("readers", ["news"]).messages(wait=2)
        assert sorted(message.text() for message in news) == sorted(COMMITTED)
    assert asked_about(topic) == []


def let_leases_run_out(broker: Broker) -> None:
    """Let so much time pass that no dead process holds anything any more."""
    store = broker.kernel.store
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {store.namespace}.lease SET until = until - interval '1 hour'"))


def held(broker: Broker) -> bool:
    """Run a round of check-back; tell whether a branch is not finished, or a half of RocketMQ's waits for one."""
    check_once(broker, AT_ONCE)
    unfinished = broker.kernel.store.work.unfinished(limit=1)
    return bool(unfinished or broker.kernel.reach("orders").prepared(broker.identity.uuid.hex))


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def asked_about(topic: RocketMQTopic, seconds: float = 3) -> list[str]:
    """Return the ids of the halves that RocketMQ asks about in the time of several checks; answer nothing."""
    asked: list[str] = []

    def hear(message: Any) -> None:
        asked.append(message.system_properties.message_id)

    client = ProxyClient(topic.server.endpoint, topic.name, hear, None, None)
    client.listen()
    time.sleep(seconds)
    client.close()
    return asked


@pytest.fixture
def participant(broker: Broker) -> RocketMQParticipant:
    found = broker.kernel.reach("orders")
    assert isinstance(found, RocketMQParticipant)
    return found


def half(participant: RocketMQParticipant, branch: BranchId, id: str) -> None:
    """Send a half that belongs to a branch, whatever the home database knows of it."""
    participant.attempt(branch, {id: Message(participant.topic, b"item=1;")})


def asked(branch: BranchId, id: str) -> Any:
    """Return what RocketMQ asks about a half of a branch."""
    return wire.new("Message", user_properties={BRANCH: branch.gid}, system_properties={"message_id": id})


@pytest.mark.rule("R9")
def test_a_half_that_no_reservation_names_is_rolled_back_and_can_never_be_committed(
    broker: Broker, participant: RocketMQParticipant, topic: RocketMQTopic
) -> None:
    branch = new_branch(beside=BranchId(broker.identity.transaction(7), 1, 1))
    half(participant, branch, "01AA")
    participant.client.listen()
    until(lambda: broker.kernel.store.reservations.find(branch) is not None)  # RocketMQ has asked
    assert participant.finish(branch, Decision.COMMIT) is Finish.ROLLED_BACK
    time.sleep(1)  # it is answered
    participant.close()
    assert asked_about(topic) == []
    late = participant.enlist(branch)
    late.handle.send(b"item=2;")
    with pytest.raises(errors.RolledBack, match="too late"):
        late.prepare()()
    assert topic.items() == []


def test_a_half_of_another_store_is_left_to_that_one(participant: RocketMQParticipant, topic: RocketMQTopic) -> None:
    half(participant, new_branch(), "01BB")
    participant.client.listen()
    time.sleep(2)
    participant.close()
    assert set(asked_about(topic)) == {"01BB"}
    assert participant.answer(asked(new_branch(), "01BB")) is None
    assert participant.answer(wire.new("Message")) is None


def test_a_question_gets_the_decision_but_a_message_that_is_there_is_not_delivered_again(
    broker: Broker, participant: RocketMQParticipant, topic: RocketMQTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = BranchId(broker.identity.transaction(7), 1, 1)
    out = participant.enlist(branch)
    out.handle.send(b"item=1;")
    assert out.prepare()() is Vote.PREPARED
    found = broker.kernel.store.reservations.find(branch)
    assert found is not None
    (id,) = cast("list[str]", found.arguments["ids"])
    assert participant.answer(asked(branch, id)) is None
    assert out.finish(Decision.COMMIT)() is Finish.DONE
    assert participant.answer(asked(branch, id)) is Decision.ROLLBACK
    assert participant.answer(asked(branch, "one that is not there")) is None  # it may be on its way
    monkeypatch.setattr(native, "FINISH", 0.0)
    assert participant.answer(asked(branch, "one that is not there")) is Decision.COMMIT
    assert (participant.finish(branch, Decision.COMMIT), topic.items()) == (Finish.DONE, [1])


@pytest.mark.rule("R9")
def test_while_rocketmq_asks_nothing_is_delivered_twice_and_nothing_that_was_rolled_back(
    broker: Broker, participant: RocketMQParticipant, topic: RocketMQTopic
) -> None:
    def order(item: int) -> None:
        out = participant.enlist(BranchId(broker.identity.transaction(item), 1, 1))
        out.handle.send(text=f"item={item};")
        assert out.prepare()() is Vote.PREPARED
        time.sleep(item % 16 / 5)  # so that checks come before, at and after the decision
        decision = Decision.ROLLBACK if item % 4 == 0 else Decision.COMMIT
        with suppress(errors.RetryLater):  # the copy of a check was ended, or the other one: RocketMQ asks again
            assert out.finish(decision)() is Finish.DONE

    committed = [item for item in range(1, 97) if item % 4]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(order, range(1, 97)))
    until(lambda: set(topic.items()) == set(committed))
    until(lambda: not asked_about(topic))
    assert sorted(topic.items()) == committed


def voted(participant: RocketMQParticipant, branch: BranchId, items: range) -> HalvesBranch:
    """Send items, and vote."""
    out = participant.enlist(branch)
    for item in items:
        out.handle.send(text=f"item={item};")
    assert out.prepare()() is Vote.PREPARED
    return out


@pytest.mark.rule("R9")
def test_a_message_is_not_doubled_if_the_one_who_ends_it_is_slow_and_all_others_are_asked(
    broker: Broker, participant: RocketMQParticipant, home_url: str, topic: RocketMQTopic
) -> None:
    end = participant.client.end

    def slow(*given: Any) -> Any:
        time.sleep(3)
        return end(*given)

    with connected(home_url, topic, roles=False) as other:
        cast(RocketMQParticipant, other.kernel.reach("orders")).client.listen()
        out = voted(participant, BranchId(broker.identity.transaction(7), 1, 1), range(1))
        participant.client.end = slow  # type: ignore[assignment,method-assign]
        assert out.finish(Decision.COMMIT)() is Finish.DONE
        time.sleep(3)
        assert topic.items() == [0]


@pytest.mark.rule("R9")
def test_who_has_no_time_left_ends_nothing_and_the_answer_to_the_next_question_does(
    broker: Broker, participant: RocketMQParticipant, topic: RocketMQTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "FINISH", QUICKLY)  # less than what a call may take
    branch, begun = BranchId(broker.identity.transaction(7), 1, 1), time.monotonic()
    out = voted(participant, branch, range(1))
    with pytest.raises(errors.RetryLater, match="when it asks"):
        out.finish(Decision.COMMIT)()
    until(lambda: topic.items() != [])
    assert time.monotonic() > begun + QUICKLY
    assert (participant.finish(branch, Decision.COMMIT), topic.items()) == (Finish.DONE, [0])


@pytest.mark.rule("R9")
def test_many_messages_of_one_transaction_are_delivered_once_each(
    broker: Broker, participant: RocketMQParticipant, topic: RocketMQTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = BranchId(broker.identity.transaction(7), 1, 1)
    with suppress(errors.RetryLater):  # a copy of a check was ended: RocketMQ asks again
        voted(participant, branch, range(300)).finish(Decision.COMMIT)()
    monkeypatch.setattr(native, "FINISH", 0.0)
    until(lambda: len(topic.items()) >= 300)
    assert participant.finish(branch, Decision.COMMIT) is Finish.DONE
    until(lambda: not asked_about(topic))
    assert sorted(topic.items()) == [*range(300)]


def confirmed(broker: Broker, branch: BranchId, *ids: str) -> None:
    """Settle a reservation, as a process does that dies before it ends a half."""
    reservations = broker.kernel.store.reservations
    reservations.begin(branch, "orders", {"ids": ids})
    reservations.hold(branch)
    assert reservations.settle(branch, Decision.COMMIT)


def test_a_commit_is_not_done_before_the_topic_has_the_message(
    broker: Broker, participant: RocketMQParticipant
) -> None:
    branch = BranchId(broker.identity.transaction(7), 1, 1)
    confirmed(broker, branch, "01CC")
    with pytest.raises(errors.RetryLater, match="01CC"):
        participant.finish(branch, Decision.COMMIT)


@pytest.mark.timeout(180)
def test_a_half_that_another_rocketmq_has_given_up_is_a_hazard_and_it_tells_who_has_keys(
    broker: Broker, topic: RocketMQTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, first = ("anna", "secret12"), topic
    with rocketmq_server(*keys, **{**QUICK, "transactionCheckMax": 2}) as server:
        topic = RocketMQTopic(server, server.topic(fresh_name("orders")))
        with pytest.raises(errors.ResourceManagerFailed, match="answered 16"):
            topic.registered(keys=("anna", "wrong")).view.settings()
        lost = first.registered(keys=keys, name_server=server.name_server)
        strange = lost.participant("lost", broker.kernel.store)
        with pytest.raises(errors.ConfigError, match="name server does not know topic"):
            strange.probe()
        strange.close()
        with pytest.raises(errors.ResourceManagerFailed, match="do not know topic"):
            lost.view.missing(["01DD"])
        participant = topic.registered(keys=keys).participant("orders", broker.kernel.store)
        branch = BranchId(broker.identity.transaction(7), 1, 1)
        half(participant, branch, "01DD")
        confirmed(broker, branch, "01DD")  # nobody answers in the next seconds
        with pytest.raises(errors.RetryLater, match="01DD"):
            participant.finish(branch, Decision.COMMIT)
        view = topic.registered(keys=keys).view
        until(lambda: not view.missing(["01DD"], GIVEN_UP))
        with pytest.raises(errors.RetryLater, match="01DD"):  # its finisher may still end it
            participant.finish(branch, Decision.COMMIT)
        monkeypatch.setattr(native, "FINISH", 0.1)
        assert participant.finish(branch, Decision.COMMIT) is Finish.HAZARD
        participant.close()


def test_an_answer_that_comes_after_the_close_opens_nothing_and_logs_no_error(
    broker: Broker, topic: RocketMQTopic, caplog: pytest.LogCaptureFixture
) -> None:
    asked, may_answer = Event(), Event()

    def answer(_message: Any) -> Decision:
        asked.set()
        assert may_answer.wait(PATIENCE)
        return Decision.ROLLBACK

    others = {*threading.enumerate()}
    client = ProxyClient(topic.server.endpoint, topic.name, answer, None, None)
    participant = topic.registered().participant("orders", broker.kernel.store)
    half(participant, new_branch(), "01EE")
    participant.close()
    client.listen()
    assert asked.wait(PATIENCE)
    client.close()
    may_answer.set()
    until(lambda: not any(each.name == "txsaga-rocketmq" for each in {*threading.enumerate()} - others))
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []
    with pytest.raises(errors.ResourceManagerFailed, match="closed"):
        client.listen()


def test_what_rocketmq_can_not_hold_is_refused_before_any_work(
    broker: Broker, topic: RocketMQTopic, rocketmq: RocketMqServer
) -> None:
    normal = RocketMQTopic(rocketmq, rocketmq.topic(fresh_name("plain"), "NORMAL"))
    nowhere = RocketMQTopic(rocketmq, "nowhere")
    gone = f"127.0.0.1:{free_port()}"
    for name, given, why in (
        ("normal", normal.registered(), "updateTopic .*message.type=TRANSACTION"),
        ("nowhere", nowhere.registered(), "updateTopic .*message.type=TRANSACTION"),
        ("long", topic.registered(undecided=86_400.0), "raise transactionCheckMax"),
        ("gone", topic.registered(name_server=gone), "no answer of RocketMQ"),
    ):
        broker.enlist(name, given)
        with pytest.raises((errors.ConfigError, errors.ResourceManagerFailed), match=why):
            broker.kernel.participant(name)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"text": "x", "delay": timedelta(seconds=1)}, "takes no delay"),
        ({"text": ""}, "the body is empty"),
        ({"body": bytes(4 * 2**20 + 1)}, "more than 4194304 bytes"),
        ({"text": "x", "tag": "a|b"}, r"has a \|"),
        ({"text": "x", "headers": {"KEYS": "x"}}, "'KEYS' has a name that RocketMQ uses"),
        ({"text": "x", "headers": {"a": "\x01"}}, "control character"),
        ({"text": "x", "headers": {BRANCH: "x"}}, "takes no txsaga-branch"),
    ],
    ids=str,
)
def test_what_the_vote_would_refuse_is_refused_when_it_is_sent(given: Any, why: str) -> None:
    with pytest.raises(errors.InvalidMessage, match=why):
        OutgoingHalves("orders", new_branch()).send(**given)


def test_calls_are_signed_with_the_access_key(broker: Broker) -> None:
    with listening(broker, {"anna": AccessKey("secret")}) as address:
        codes = []
        for keys in (("anna", "secret"), ("anna", "wrong"), None):
            client = ProxyClient(address, "news", lambda _: None, keys, None)
            codes.append(client.call("QueryRoute", topic={"name": "news"}).status.code)
            client.close()
    assert codes == [Code.OK, Code.UNAUTHORIZED, Code.UNAUTHORIZED]
