"""The embedded database comes back for whoever uses it when it is killed, and for nobody when it is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import txsaga
from tests.services.embedded import temporary_home
from txsaga.broker import Broker
from txsaga.embedded.home import Secret, ServerHome
from txsaga.embedded.launch import StopMode, free_port
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import StoreUnavailable

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """Give an embedded server that may be killed."""
    with temporary_home() as home:
        yield EmbeddedServer(home=home)


@pytest.fixture
def broker(server: EmbeddedServer) -> Iterator[Broker]:
    """Give the broker of a program that knows nothing of the server but its home."""
    env = {"TXSAGA_PG_HOME": str(server.home)}
    with txsaga.connect(env=env, auto_create=True, patience=5.0) as broker:
        broker.producer("shop")  # the roles run from here on
        yield broker


def until(seen: Callable[[], bool]) -> None:
    """Wait until something is seen."""
    end = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.02)


def kill(server: EmbeddedServer) -> int:
    """Kill the postmaster; return what its process id was."""
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.req("BEYOND-8")
def test_a_message_that_is_sent_after_a_kill_is_delivered_without_any_command(
    server: EmbeddedServer, broker: Broker
) -> None:
    producer = broker.producer("shop")
    producer.send("orders", b"before")
    messages = broker.stream("billing", ["orders"]).messages(wait=10)
    assert next(messages).body == b"before"
    killed = kill(server)

    producer.send("orders", b"after")

    assert next(messages).body == b"after"
    assert server.status().pid not in (None, killed)


def test_the_roles_of_an_idle_program_bring_it_back(server: EmbeddedServer, broker: Broker) -> None:
    killed = kill(server)
    until(lambda: server.status().pid not in (None, killed))


def test_a_server_that_comes_back_on_another_port_is_found(server: EmbeddedServer, broker: Broker) -> None:
    server.stop()
    home = ServerHome(server.home)
    known = Secret.read(home)
    assert known is not None
    moved = replace(known, port=next(port for port in iter(free_port, None) if port != known.port))
    moved.write(home)
    server.ensure()

    assert broker.create_topic(f"at_{moved.port}").name == f"at_{moved.port}"
    assert server.status().port == moved.port != known.port


@pytest.mark.parametrize("mode", [StopMode.FAST, StopMode.IMMEDIATE])
@pytest.mark.parametrize("killed", [False, True])
def test_what_a_user_stops_stays_stopped(
    server: EmbeddedServer, broker: Broker, mode: StopMode, killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if killed:
        kill(server)
    server.stop(mode)
    caplog.clear()

    with pytest.raises(StoreUnavailable, match="`txsaga db start` starts an embedded one"):
        broker.create_topic("never")

    until(lambda: "role dispatcher waits" in caplog.text)
    assert not server.status().running
