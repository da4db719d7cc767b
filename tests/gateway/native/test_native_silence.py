"""A connection to RocketMQ that is lost, or falls silent, is noticed, logged once, and opened again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from tests.chaos.proxy import Loss, Proxy, network
from tests.gateway.calling import listening, message
from tests.gateway.native.topics import RocketMQTopic
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.gateway import proxy_client, wire
from txsaga.gateway.access_keys import AccessKey
from txsaga.gateway.proxy_client import ProxyClient

pytestmark = pytest.mark.postgres
PATIENCE = 30.0
ID = "01AB"


@contextmanager
def behind(endpoint: str) -> Iterator[tuple[Proxy, str]]:
    """Give a network before a server, and the address that leads through it."""
    with network(f"rocketmq://{endpoint}") as line:
        yield line, line.url.removeprefix("rocketmq://")


@contextmanager
def client_of(
    address: str, topic: str, keys: tuple[str, str] | None = None
) -> Iterator[tuple[ProxyClient, SimpleQueue[Any]]]:
    """Give a client that listens, and what it is asked about; it never answers."""
    asked: SimpleQueue[Any] = SimpleQueue()
    client = ProxyClient(address, topic, asked.put, keys, None)
    client.listen()
    yield client, asked
    client.close()


def logged(caplog: pytest.LogCaptureFixture, count: int) -> Sequence[str]:
    """Wait for so many lines of the log, and for the time of more tries; return them."""
    end = time.monotonic() + PATIENCE
    while len(caplog.records) < count:
        assert time.monotonic() < end, caplog.text
        time.sleep(0.01)
    time.sleep(1)
    return [f"{each.levelname} {each.getMessage()}" for each in caplog.records if "RocketMQ" in each.msg]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Let a client try, and show life, more often."""
    monkeypatch.setattr(proxy_client, "PAUSE", 0.1)
    monkeypatch.setattr(proxy_client, "RENEWED", 0.1)
    caplog.set_level(logging.INFO, "txsaga")


def test_a_silent_connection_is_given_up_and_rocketmq_asks_on_a_new_one(
    topic: RocketMQTopic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(proxy_client.OPTIONS, "grpc.keepalive_time_ms", 2_000)  # 20 s are long for a test
    monkeypatch.setattr(proxy_client, "RENEWED", 0.5)  # RocketMQ hangs up on pings that are more frequent than answers
    with behind(topic.server.endpoint) as (line, address), client_of(address, topic.name) as (client, asked):
        half = message(topic.name, type="TRANSACTION", id=ID, born_timestamp=wire.in_parts(time.time()))
        client.call("SendMessage", messages=[half])
        assert asked.get(timeout=PATIENCE).system_properties.message_id == ID
        line.lose(b"", Loss.MUTE)  # from the next sign of life on
        assert line.broke.wait(PATIENCE)
        silent = time.monotonic()
        while not asked.empty():
            asked.get()
        assert asked.get(timeout=PATIENCE).system_properties.message_id == ID
        assert time.monotonic() < silent + 15
        [warning] = logged(caplog, 1)
        assert warning.startswith("WARNING")
        assert f"can't ask us about topic {topic.name}: Stream removed (ping timeout)" in warning
        client.end(ID, Decision.ROLLBACK)


@pytest.mark.usefixtures("quick")
def test_each_loss_is_logged_once_with_what_happens_next(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with listening(broker) as gateway, behind(gateway) as (line, address), client_of(address, "news"):
        for lost in (1, 3):
            line.refusing = True
            line.lose(b"", Loss.RESET)
            assert len(logged(caplog, lost)) == lost
            line.refusing = False
            said = logged(caplog, lost + 1)
            assert len(said) == lost + 1
            assert said[-2].startswith(f"WARNING RocketMQ at {address} can't ask us about topic news: ")
            assert said[-2].endswith("; we connect again every 0 s, until then other processes answer")
            assert said[-1] == f"INFO RocketMQ at {address} asks us again"


@pytest.mark.usefixtures("quick")
def test_a_client_that_is_refused_is_a_loss(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with listening(broker, {"anna": AccessKey("secret")}) as gateway, client_of(gateway, "news", ("anna", "wrong")):
        [warning] = logged(caplog, 1)
    assert "WARNING" in warning
    assert "the signature of key 'anna' is wrong" in warning
