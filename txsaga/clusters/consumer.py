"""
A reader of all brokers of a cluster: one session for each, their messages first come, first served.

Messages on an unavailable broker wait there; the others are read on. When a broker goes or comes back, `receive` raises
a connection error and the caller reconnects; iterating does that by itself. Across brokers only the order of arrival is
promised. A message is acknowledged on its own broker; if this process dies, that broker delivers it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import Empty, Full, Queue
from types import TracebackType
from typing import Self

from txsaga.broker import Broker
from txsaga.clusters.copies import Arrival, Copies
from txsaga.clusters.members import AWAY, Members
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.core.arguments import check_seconds
from txsaga.core.role_loop import Loop, Pace
from txsaga.errors import StoreUnavailable, TxSagaError


class Active:
    """The active set of one reader."""

    def __init__(self, members: Members, on_reconnect: Callable[[], None]) -> None:
        self._members, self._on_reconnect = members, on_reconnect
        self.names, self._changes = members.available(), members.changes

    def reconnect(self) -> None:
        """Read from the brokers that are reachable now."""
        self._on_reconnect()
        self.names, self._changes = self._members.available(), self._members.changes

    def require_unchanged(self) -> None:
        """Raise `StoreUnavailable` if a broker went or came back since the last call."""
        if self._members.changes == self._changes:
            return
        there = self._members.available()
        gone, back = set(self.names) - set(there), set(there) - set(self.names)
        if not gone and not back:
            self._changes = self._members.changes
            return
        told = [f"{name} went away" for name in sorted(gone)] + [f"{name} is back" for name in sorted(back)]
        raise StoreUnavailable(f"{', '.join(told)}; reconnect() reads from {', '.join(there) or 'none'}")


logger = logging.getLogger("txsaga")

Arrived = Arrival[Delivery]

AHEAD = 64
"""Messages of all brokers that are buffered for the reader."""
LOOK = 0.5
"""Seconds between two checks of copies that are held back."""


class ClusterSession:
    """Takes messages from one broker, as a role."""

    pace = Pace(0.05, 1.0)

    def __init__(
        self, name: str, members: Members, open: Callable[[Broker], Consumer], arrived: Callable[[Arrived], bool]
    ) -> None:
        self.name, self._members, self._open, self._arrived = name, members, open, arrived
        self._consumer: Consumer | None = None
        self.wait = LOOK
        self.closed = False

    def run_once(self) -> int:
        """Take the available messages, waiting briefly for the first; an unavailable broker is retried later."""
        if self.closed or not self._members.is_there(self.name):
            return 0
        try:
            if self._consumer is None:
                broker = self._members.broker(self.name)
                broker.kernel.store.registry.topics()  # opening blocks while the store is unavailable: check first
                self._consumer = self._open(broker)
            messages = self._consumer.receive(wait=self.wait, patience=0.0)
        except AWAY as away:
            self._members.failed(self.name, away)
            return 0
        for at, message in enumerate(messages):
            if not self._arrived(Arrival(self.name, message)):
                _give_back(messages[at:])
                break
        return len(messages)

    def close(self) -> None:
        """Give unprocessed messages back."""
        self.closed = True
        if self._consumer is not None:
            with suppress(TxSagaError):
                self._consumer.close()


class ClusterConsumer:
    """Receives messages from every broker of a cluster, for one member of a group."""

    def __init__(
        self,
        members: Members,
        open: Callable[[Broker], Consumer],
        copies: Copies[Delivery],
        *,
        background: bool = True,
        reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._members, self._copies, self._active = members, copies, Active(members, reconnect)
        self._arrivals: Queue[Arrived] = Queue(AHEAD)
        self._background, self._closed = background, False
        self.sessions = {name: ClusterSession(name, members, open, self._put) for name in members.names}
        self._loop = Loop(list(self.sessions.values())) if background else None
        if self._loop is not None:
            self._loop.start()
        else:
            for session in self.sessions.values():
                session.wait = 0.0

    @property
    def active(self) -> tuple[str, ...]:
        """The brokers that are read."""
        return self._active.names

    def receive(self, count: int = 1, *, wait: float = 0.0) -> list[Arrived]:
        """Take up to `count` messages, each with its broker; raise `StoreUnavailable` if a broker went or came back."""
        check_seconds(wait, "wait")
        end = time.monotonic() + wait
        while True:
            if self._loop is None:
                for session in self.sessions.values():
                    session.run_once()
            self._active.require_unchanged()
            if found := self._taken(count, max(0.0, min(LOOK, end - time.monotonic()))):
                return found
            if time.monotonic() >= end or self._closed:
                return []

    def messages(self, *, wait: float | None = None) -> Generator[Delivery]:
        """Yield messages, following brokers that go or come back; end after `wait` idle seconds."""
        while not self._closed:
            try:
                found = self.receive(wait=LOOK if wait is None else wait)
            except StoreUnavailable as changed:
                logger.warning("%s", changed)
                self.reconnect()
                continue
            if not found and wait is not None:
                return
            for arrival in found:
                yield arrival.message

    def __iter__(self) -> Iterator[Delivery]:
        return self.messages()

    def reconnect(self) -> None:
        """Read from the brokers that are reachable now."""
        self._active.reconnect()

    def close(self) -> None:
        """Stop the sessions, and give unprocessed messages back."""
        self._closed = True
        for session in self.sessions.values():
            session.closed = True
        if self._loop is not None:
            self._loop.stop()
        with suppress(Empty):
            while True:
                _give_back([self._arrivals.get_nowait().message])
        for session in self.sessions.values():
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _taken(self, count: int, wait: float) -> list[Arrived]:
        found = list(islice(self._copies.due(), count))
        for dropped in self._copies.dropped():
            _drop(dropped.message)
        with suppress(Empty):
            while len(found) < count:
                arrival = self._arrivals.get(timeout=wait) if not found and wait else self._arrivals.get_nowait()
                if self._copies.arrived(arrival):
                    found.append(arrival)
                elif self._copies.knows(arrival):
                    _drop(arrival.message)
        return found

    def _put(self, arrival: Arrived) -> bool:
        while not self._closed:
            with suppress(Full):
                self._arrivals.put(arrival, timeout=LOOK)
                return True
        return False


def _drop(message: Delivery) -> None:
    with suppress(TxSagaError):  # it is delivered again, and dropped then
        message.ack()


def _give_back(messages: Sequence[Delivery]) -> None:
    for message in messages:
        with suppress(TxSagaError):
            message.nack("its reader closed")
