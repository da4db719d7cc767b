"""Processes of a flow: each has a broker of its own on the same store, and knows nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

import txsaga
from tests.flows.coordinated.bank import Bank
from tests.scene.stored import Stored
from txsaga import Broker
from txsaga.core.announcer import Observer
from txsaga.core.decision import LocalState
from txsaga.flows.flow import Flow
from txsaga.messages.producer import Producer

KEY = "transfer-7"
BOTH = ("current", "mortgage")


@dataclass(slots=True)
class Desks:
    """A bank whose flows are worked on by many processes."""

    url: str
    engines: Mapping[str, Engine]
    bank: Bank
    observers: Sequence[Observer] = ()

    @property
    def stored(self) -> Stored:
        """The rows of the store."""
        return self.bank.stored

    @contextmanager
    def process(self) -> Iterator[Broker]:
        """Open what another process has."""
        options = {"roles": False, "answering": False, "env": {}, "observers": list(self.observers)}
        with txsaga.connect(self.url, resources=self.engines, **options) as broker:  # type: ignore[arg-type]
            yield broker

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Open a producer in another process."""
        with self.process() as broker:
            yield broker.producer("bank", checker=lambda _: LocalState.UNKNOWN)

    def begin(self, *resources: str, key: str = KEY, **options: object) -> int:
        """Begin a flow in a process of its own."""
        with self.producer() as producer:
            return producer.begin_flow(*resources, key=key, **options).txid  # type: ignore[arg-type]

    @contextmanager
    def joined(self, txid: int) -> Iterator[Flow]:
        """Join a flow in a process of its own."""
        with self.process() as broker, broker.flow(txid) as flow:
            yield flow

    def pay(self, txid: int, step: str, amount: int, *, account: int = 1, **place: Any) -> None:  # as a step takes it
        """Do a step that changes a balance, held prepared."""
        with self.joined(txid) as flow, flow.step(step, **place) as connection:
            pay_by_update(connection, amount, account)

    def write(self, txid: int, step: str, amount: int, *, account: int = 1, **place: Any) -> None:  # as a step takes it
        """Do a step that journals the same change."""
        with self.joined(txid) as flow, flow.step(step, hold="journal", **place) as journal:
            journal.execute(CHANGE, {"amount": amount, "id": account}, rows=1)

    def commit(self, txid: int, lane: str) -> None:
        """Commit a lane in a process of its own."""
        with self.joined(txid) as flow:
            flow.lane(lane).commit()

    def end(self, txid: int) -> None:
        """End a flow in a process of its own."""
        with self.joined(txid) as flow:
            flow.end()


CHANGE = "update account set balance = balance + :amount where id = :id"


def pay_by_update(connection: object, amount: int, account: int = 1) -> None:
    """Change a balance that is there."""
    from sqlalchemy import Connection, text

    assert isinstance(connection, Connection)
    connection.execute(text(CHANGE), {"amount": amount, "id": account})
