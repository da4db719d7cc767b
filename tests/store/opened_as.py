"""Brokers of logins with some rights, as fixtures, and what the tests of rights do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

import txsaga
from tests.store.logins import Logins, logins
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

Open = Callable[..., Broker]


@pytest.fixture
def made(home_url: str) -> Iterator[Logins]:
    open_store(home_url).close()
    with logins(home_url) as made:
        yield made


@pytest.fixture
def open_as(made: Logins) -> Iterator[Open]:
    """Give a way to open brokers with some rights."""
    with ExitStack() as opened:

        def open_as(*rights: Right, url: str | None = None, roles: bool = False) -> Broker:
            address = url or made.url_with(*rights)
            return opened.enter_context(txsaga.connect(address, roles=roles, answering=False, env={}))

        yield open_as


@pytest.fixture
def operator(open_as: Open) -> Broker:
    broker = open_as(Right.OPERATOR)
    broker.create_topic("orders", "transaction", queues=1)
    broker.create_topic("news", queues=1)
    broker.create_topic("later", "delay", queues=1)
    return broker


@pytest.fixture
def engine(open_as: Open) -> Broker:
    return open_as(Right.ENGINE)


def run_roles(broker: Broker) -> None:
    _, answering = broker.own_roles()
    Heartbeat(broker.kernel).enlist()
    for role in [*reversed(broker.roles()), *broker.roles()]:
        role.run_once()
    while answering.run_once():
        pass


def everything(workers: Consumer) -> list[Delivery]:
    """Take what there is: a group that tries once hands out one at a time."""
    found: list[Delivery] = []
    while taken := workers.receive(wait=0):
        found += taken
    return found


def read(broker: Broker, *topics: str, group: str = "readers") -> list[bytes]:
    with closing(broker.stream(group, topics)) as stream:
        return [message.body for message in stream.messages(wait=0)]
