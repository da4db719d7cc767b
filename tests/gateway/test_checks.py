"""Check-back through the gateway: a connected client is asked, at any instance, and its answer decides."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.gateway.calling import RawClient, listening, message
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.answering import AnswerRole
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core.lifecycle import TxState
from txsaga.core.role_loop import Role
from txsaga.errors import StoreUnavailable
from txsaga.gateway.status import Code

pytestmark = pytest.mark.postgres
NOW = CheckProfile(interval=timedelta(seconds=30), min_age=timedelta(0))


@contextmanager
def answering(broker: Broker, profile: CheckProfile = NOW) -> Iterator[None]:
    """Run check-back, and its questions to this process, until the block ends."""
    over = threading.Event()
    roles: list[Role] = [Heartbeat(broker.kernel), CheckBack(broker.kernel, profile), AnswerRole(broker.kernel, 4)]

    def run() -> None:
        while not over.wait(0.05):
            for role in roles:
                role.run_once()

    running = threading.Thread(target=run)
    running.start()
    try:
        yield
    finally:
        over.set()
        running.join(30)


def half(client: RawClient, body: bytes = b"hello") -> Any:
    (entry,) = client.send(message("orders", body, type="TRANSACTION", id="0102")).entries
    assert Code(entry.status.code) is Code.OK
    return entry


def asked(told: queue.SimpleQueue[Any], seconds: float = 20) -> Any:
    while True:
        if (command := told.get(timeout=seconds)) is None:
            raise EOFError("the stream is over")
        if command.HasField("recover_orphaned_transaction_command"):
            return command.recover_orphaned_transaction_command


def is_left(broker: Broker, group: int) -> bool:
    """Tell whether this process stops answering for a group within five seconds."""
    until = time.monotonic() + 5
    while group in broker.kernel.checkers.by_id and time.monotonic() < until:
        time.sleep(0.05)
    return group not in broker.kernel.checkers.by_id


def state(broker: Broker, entry: Any) -> str:
    view = broker.kernel.store.overview.transaction(broker.identity.own(entry.transaction_id.split(".")[0]))
    return "undecided" if view is None else str(view.state)


@pytest.mark.req("RMQ-59", "RMQ-62", "RMQ-86")
@pytest.mark.conf("INT-05", "PRX-20", "PRX-24", "PRX-25")
@pytest.mark.parametrize("answer", ["COMMIT", "ROLLBACK"])
def test_a_client_is_asked_about_what_it_left_and_its_answer_decides(
    client: RawClient, broker: Broker, stored: Stored, answer: str
) -> None:
    with client.connected("orders") as told:
        assert Code(told.get(timeout=20).status.code) is Code.OK
        entry = half(client)
        with answering(broker):
            question = asked(told)
            about = question.message
            assert (about.topic.name, about.body, about.system_properties.message_id) == ("orders", b"hello", "0102")
            assert question.transaction_id == entry.transaction_id
            ended = client.end(question.transaction_id, answer, "SOURCE_SERVER_CHECK")
            assert Code(ended.status.code) is Code.OK
    assert state(broker, entry) == (TxState.COMMITTED if answer == "COMMIT" else TxState.ROLLED_BACK)
    assert [each.body for each in client.messages("readers", "orders", wait=3)] == [b"hello"] * (answer == "COMMIT")


@pytest.mark.hole("H9")
@pytest.mark.conf("INT-06")
def test_an_answer_that_reaches_another_instance_decides(client: RawClient, broker: Broker, stored: Stored) -> None:
    with client.connected("orders") as told, listening(broker) as other, RawClient(other, "tester@1") as elsewhere:
        told.get(timeout=20)
        entry = half(client)
        with answering(broker):
            question = asked(told)
            elsewhere.end(question.transaction_id, "COMMIT", "SOURCE_SERVER_CHECK")
    assert state(broker, entry) == TxState.COMMITTED


@pytest.mark.hole("H8")
def test_nobody_is_asked_once_the_last_client_has_left(client: RawClient, broker: Broker) -> None:
    group = broker.kernel.store.registry.group("orders")
    with client.connected("orders") as told:
        told.get(timeout=20)
        assert group.id in broker.kernel.checkers.by_id
        with client.connected("orders") as again:  # the same client, connected twice
            again.get(timeout=20)
        assert group.id in broker.kernel.checkers.by_id
    assert is_left(broker, group.id)


@pytest.mark.conf("PRX-21")
def test_a_client_that_says_it_leaves_is_not_asked_any_more(client: RawClient, broker: Broker) -> None:
    group = broker.kernel.store.registry.group("orders")
    with client.connected("orders") as told:
        told.get(timeout=20)
        assert Code(client("NotifyClientTermination").status.code) is Code.OK
        assert is_left(broker, group.id)


def test_a_client_that_is_silent_for_long_is_not_asked_any_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.gateway.clients.SILENT", 1.5)
    monkeypatch.setattr("txsaga.gateway.server.TIDY", 0.2)
    group = broker.kernel.store.registry.group("orders")
    with listening(broker) as address, RawClient(address) as client, client.connected("orders") as told:
        told.get(timeout=20)
        for _ in range(4):
            threading.Event().wait(0.5)
            assert Code(client("Heartbeat", client_type=1).status.code) is Code.OK
        assert group.id in broker.kernel.checkers.by_id
        assert is_left(broker, group.id)


@pytest.mark.hole("H13")
def test_an_answer_with_another_token_is_none(client: RawClient, broker: Broker) -> None:
    with client.connected("orders") as told:
        told.get(timeout=20)
        entry = half(client)
        with answering(broker):
            id = asked(told).transaction_id
            wrong = id[:-2] + ("00" if id[-2:] != "00" else "11")
            client.end(wrong, "TRANSACTION_RESOLUTION_UNSPECIFIED", "SOURCE_SERVER_CHECK")
            assert Code(client.end(id, "COMMIT", "SOURCE_SERVER_CHECK").status.code) is Code.OK
    assert state(broker, entry) == TxState.COMMITTED


def test_a_registration_that_failed_once_is_made_up_for(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, fails = broker.kernel.store.registry.group("orders"), [StoreUnavailable("away")]
    producer = broker.producer

    def flaky(name: str, **given: Any) -> Any:
        if fails:
            raise fails.pop()
        return producer(name, **given)

    monkeypatch.setattr(broker, "producer", flaky)
    with client.connected("orders") as told:
        assert Code(told.get(timeout=20).status.code) is Code.INTERNAL_SERVER_ERROR
        with client.connected("orders") as again:
            assert Code(again.get(timeout=20).status.code) is Code.OK
            assert group.id in broker.kernel.checkers.by_id


def test_an_answer_that_does_not_say_that_it_is_one_is_one(
    gateway: str, broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.gateway.checks.PATIENCE", 1.0)
    with RawClient(gateway, "silent@1") as client, client.connected("orders") as told:
        told.get(timeout=20)
        half(client)
        with answering(broker):
            client.end(asked(told).transaction_id, "COMMIT", "SOURCE_UNSPECIFIED")
            threading.Event().wait(1.5)
    assert "silent@1 has not answered" not in caplog.text


def test_a_client_is_told_the_settings_that_hold_for_it(client: RawClient, broker: Broker) -> None:
    with client.connected("orders", "news", "nowhere") as told:
        settings = told.get(timeout=20).settings
        assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 * 2**20, True)
    broker.consumer("readers", ["news"]).close()
    broker.kernel.store.groups.alter("readers", {"max_attempts": 5, "first_retry": timedelta(seconds=3)})
    subscription = {"group": {"name": "readers"}, "subscriptions": [{"topic": {"name": "news"}}]}
    with client.connected(client_type=2, subscription=subscription) as told:
        settings = told.get(timeout=20).settings
        assert (settings.backoff_policy.max_attempts, settings.subscription.fifo) == (5, False)
        assert [each.seconds for each in settings.backoff_policy.customized_backoff.next][:3] == [3, 6, 12]


def test_a_client_of_half_messages_does_not_repeat_a_send(client: RawClient) -> None:
    tries = {}
    for topic in ("orders", "news"):
        with client.connected(topic) as told:
            tries[topic] = told.get(timeout=20).settings.backoff_policy.max_attempts
    assert tries == {"orders": 1, "news": 3}
