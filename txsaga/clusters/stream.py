"""
A stream over all brokers of a cluster: a cursor on each, their chunks first come, first served.

Chunks on an unavailable broker wait there; the others are read on. A chunk is committed on its own broker: by `commit`,
by iterating on, or inside a transaction's decision (`tx.consume`). Of several copies of a message one is delivered;
while a copy waits for its primary's, its broker waits too, because a cursor skips nothing. If a loop is left within a
chunk, that chunk is read again, and no copy counts as delivered for the message whose work failed; the other brokers'
chunks continue where the loop was. If this process dies, what it did not commit is read again there.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

from txsaga.broker import Broker
from txsaga.clusters.consumer import Active
from txsaga.clusters.copies import Arrival, Copies
from txsaga.clusters.members import AWAY, Members
from txsaga.consume.delivery import Consuming
from txsaga.consume.stream import Stream
from txsaga.core.arguments import check_kind, check_seconds
from txsaga.core.failure import on_failure
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.errors import LeaseLost, StoreUnavailable, TransactionError, TxSagaError

logger = logging.getLogger("txsaga")

PAUSE = 0.05
"""Seconds between two polls when no broker had anything."""
A_CHUNK = "give a chunk that this stream gave"

Found = TypeVar("Found")


class BrokerCursor:
    """The stream of one broker, and the unread part of its current chunk, which is kept between loops."""

    def __init__(self, name: str, members: Members, open: Callable[[Broker], Stream]) -> None:
        self.name, self._members, self._open = name, members, open
        self._stream: Stream | None = None
        self._left: Generator[Delivered] | None = None
        self._passed: Batch | None = None  # read completely, not yet committed
        self.waits = False  # the next message is a copy that waits for its primary's

    @property
    def stream(self) -> Stream:
        """The stream, opened if the broker is reachable."""
        if self._stream is None:
            broker = self._members.broker(self.name)
            broker.kernel.store.registry.topics()  # opening blocks while the store is unavailable: check first
            self._stream = self._open(broker)
        return self._stream

    def poll(self) -> Batch | None:
        """Return the next chunk, if the broker is reachable and has one."""
        return self._there(self._chunk)

    def message(self) -> Delivered | None:
        """Return the next message; commit the chunk before it."""
        return None if self.waits else self._there(self._next)

    def read_again(self) -> None:
        """Read the current chunk again."""
        if self._left is not None:
            self._left.close()
        self.waits = False

    def close(self) -> None:
        """Release the queues."""
        if self._stream is not None:
            with suppress(TxSagaError):
                self._stream.close()

    def _next(self) -> Delivered | None:
        while self._left is None or (message := next(self._left, None)) is None:
            batch = self._chunk()
            if batch is None:
                return None
            self._left = self._read(batch)
        return message

    def _read(self, batch: Batch) -> Generator[Delivered]:
        yield from self.stream.read(batch)
        self._passed = batch

    def _chunk(self) -> Batch | None:
        if self._passed is not None:
            self._commit(self._passed)
        return self.stream.poll()

    def _commit(self, batch: Batch) -> None:
        try:
            self.stream.commit(batch)
        except LeaseLost as lost:  # unavailable for longer than its lease: the next reader gets the chunk again
            logger.warning("broker %r: %s", self.name, lost)
        self._passed = None

    def _there(self, ask: Callable[[], Found | None]) -> Found | None:
        if not self._members.is_there(self.name):
            return None
        try:
            return ask()
        except AWAY as away:
            self._members.failed(self.name, away)
            return None


class ClusterStream:
    """Reads topics from every broker of a cluster, for one member of a group."""

    def __init__(
        self,
        members: Members,
        open: Callable[[Broker], Stream],
        copies: Copies[Delivered],
        *,
        reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._members, self._copies, self._active = members, copies, Active(members, reconnect)
        self._sources = {name: BrokerCursor(name, members, open) for name in members.names}
        self._turns = deque(self._sources.values())
        self._closed = Event()

    @property
    def active(self) -> tuple[str, ...]:
        """The brokers that are read."""
        return self._active.names

    def poll(self) -> Batch | None:
        """Return the next chunk of any broker; raise `StoreUnavailable` if a broker went or came back."""
        if self._closed.is_set():
            raise LeaseLost("this stream of a cluster is closed; open another with cluster.stream")
        found = self._by_turns(self._chunk)
        if found is None:
            self._active.require_unchanged()
        return found

    def batches(self, *, wait: float | None = None) -> Iterator[Batch]:
        """Yield chunks as columns, including copies, without committing; end after `wait` idle seconds."""
        return self._until_idle(lambda: self._by_turns(self._chunk), wait)

    def messages(self, *, wait: float | None = None) -> Iterator[Delivered]:
        """Yield messages, one of several copies; each chunk is committed when the message after it is requested.

        If a loop is left within a chunk, even at its last message, that chunk is read again.
        """
        for arrival in self._until_idle(self._arrival, wait):
            with on_failure(self._failed, arrival):
                yield arrival.message

    def __iter__(self) -> Iterator[Delivered]:
        return self.messages()

    def commit(self, batch: Batch, *, upto: int | None = None) -> None:
        """Move the cursor past a chunk, on the broker that it came from."""
        self._of(batch).commit(batch, upto=upto)

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Make a transaction's decision move the cursor past a chunk (`tx.consume`)."""
        self._of(batch).bind(transaction, batch)

    def reconnect(self) -> None:
        """Read from the brokers that are reachable now."""
        self._active.reconnect()

    def close(self) -> None:
        """Release the queues on every broker; running iterations end."""
        self._closed.set()
        for source in self._sources.values():
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of(self, batch: Batch) -> Stream:
        check_kind(batch, Batch, "the chunk", A_CHUNK)
        name = self._members.of_store(batch.store.uuid)
        if name is None:
            raise TransactionError(f"the chunk lies in store {batch.store.uuid}, which is none of this cluster's")
        return self._sources[name].stream

    def _by_turns(self, ask: Callable[[BrokerCursor], Found | None]) -> Found | None:
        """Ask one broker after the other, starting after the one that last had something."""
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            if (found := ask(self._turns[-1])) is not None:
                return found
        return None

    def _chunk(self, source: BrokerCursor) -> Batch | None:
        self._read_again(source)
        return source.poll()

    def _failed(self, arrival: Arrival[Delivered]) -> None:
        self._read_again(self._sources[arrival.broker])
        self._copies.failed(arrival)

    def _read_again(self, source: BrokerCursor) -> None:
        source.read_again()
        self._copies.give_up(source.name)

    def _arrival(self) -> Arrival[Delivered] | None:
        due = next(self._copies.due(), None)
        if due is not None:
            self._sources[due.broker].waits = False
        for dropped in self._copies.dropped():
            self._sources[dropped.broker].waits = False
        return due or self._by_turns(self._first_copy)

    def _first_copy(self, source: BrokerCursor) -> Arrival[Delivered] | None:
        while (message := source.message()) is not None:
            arrival = Arrival(source.name, message)
            if self._copies.arrived(arrival):
                return arrival
            source.waits = not self._copies.knows(arrival)
        return None

    def _until_idle(self, ask: Callable[[], Found | None], wait: float | None) -> Generator[Found]:
        if wait is not None:
            check_seconds(wait, "wait")
        last = time.monotonic()
        while not self._closed.is_set():
            found = ask()
            if found is not None:
                yield found
                last = time.monotonic()
            elif wait is not None and time.monotonic() - last >= wait:
                return
            else:
                self._follow()
                self._closed.wait(PAUSE if wait is None else min(PAUSE, wait))

    def _follow(self) -> None:
        try:
            self._active.require_unchanged()
        except StoreUnavailable as changed:
            logger.warning("%s", changed)
            self.reconnect()
