"""
Reads every broker of a cluster by turns, in the caller's thread: a consumer's messages one by one, a stream's chunks.

Each broker has a source, opened when the broker is reachable and left alone while it is away: what lies there waits,
and the others are read on. When a broker goes or comes back, the caller gets a connection error and reconnects;
iterating does that by itself. Across brokers only the order of arrival is promised. Of several copies of a message one
is delivered. Nothing is read while nobody asks.

A message is acknowledged, and a chunk committed, on its own broker: if this process dies, that broker delivers it
again. While a stream waits for the primary of a copy, the copy's broker waits too, because a cursor skips nothing. If
its loop is left within a chunk, that chunk is read again, and no copy counts as delivered for the message whose work
failed; the other brokers' chunks continue where the loop was.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from threading import Event, RLock
from typing import Any, Generic, Self, TypeVar

from txsaga.broker import Broker
from txsaga.clusters.copies import Arrival, Copies
from txsaga.clusters.members import AWAY, Members
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Consuming, Delivery
from txsaga.consume.stream import Stream
from txsaga.core.arguments import check_count, check_kind, check_seconds
from txsaga.core.failure import on_failure
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionError, TxSagaError

logger = logging.getLogger("txsaga")

PAUSE = 0.04
"""Seconds between two turns in which no broker had anything."""
A_CHUNK = "give a chunk that this stream gave"


R = TypeVar("R", bound=Consumer | Stream)
M = TypeVar("M", bound=Delivery | Delivered)
Found = TypeVar("Found")


class Source(ABC, Generic[R, M]):
    """The messages of one broker."""

    def __init__(self, name: str, members: Members, open: Callable[[Broker], R]) -> None:
        self.name, self._members, self._open = name, members, open
        self._reader: R | None = None

    @property
    def in_hand(self) -> bool:
        """Whether it holds messages that came before those of the other brokers."""
        return False

    @property
    def reader(self) -> R:
        """The reader of this broker, opened if the broker is reachable."""
        if self._reader is None:
            broker = self._members.broker(self.name)
            broker.kernel.store.registry.topics()  # opening blocks while the store is unavailable: check first
            self._reader = self._open(broker)
        return self._reader

    def ask(self, question: Callable[[], Found | None]) -> Found | None:
        """Return the broker's answer; none while it is away."""
        if not self._members.is_there(self.name):
            return None
        try:
            return question()
        except (*AWAY, OutcomeUnknown) as away:  # a lost claim expires, and a commit is tried again
            self._members.failed(self.name, away)
            return None

    @abstractmethod
    def next(self) -> M | None:
        """Return the next message."""

    def close(self) -> None:
        """Give back what was not processed."""
        if self._reader is not None:
            with suppress(TxSagaError):
                self._reader.close()


S = TypeVar("S", bound=Source[Any, Any])


class ClusterReader(Generic[S, M]):
    """Reads every broker of a cluster, for one member of a group."""

    _in_order = False
    """Whether a copy that waits for its primary's holds up what comes after it on its broker."""

    def __init__(self, members: Members, sources: Iterable[S], copies: Copies[M]) -> None:
        self._members, self._copies = members, copies
        self._sources = {source.name: source for source in sources}
        self._turns = deque(self._sources.values())
        self._active, self._changes = members.available(), members.changes
        self._closed, self._lock = Event(), RLock()  # a cluster closes its readers from another thread

    @property
    def active(self) -> tuple[str, ...]:
        """The brokers that are read."""
        return self._active

    def messages(self, *, wait: float | None = None) -> Iterator[M]:
        """Yield messages, one of several copies, following brokers that go or come back; end after `wait` idle seconds.

        A stream commits each chunk when the message after it is requested. If its loop is left within a chunk, even at
        the last message, that chunk is read again.
        """
        for arrival in self._until_idle(lambda: self._or_follow(self._next()), wait):
            with on_failure(self._failed, arrival):
                yield arrival.message

    def __iter__(self) -> Iterator[M]:
        return self.messages()

    def reconnect(self) -> None:
        """Read from the brokers that are reachable now."""
        self._members.look_again()
        self._active, self._changes = self._members.available(), self._members.changes

    def close(self) -> None:
        """Give back what was not processed, on every broker; running iterations end."""
        self._closed.set()
        with self._lock:
            for source in self._sources.values():
                source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self, arrival: Arrival[M]) -> None:
        """Be done with a copy of which another was delivered."""

    def _failed(self, arrival: Arrival[M]) -> None:
        """Handle a message whose loop was left."""

    def _next(self) -> Arrival[M] | None:
        """Return the next message of any broker, one of several copies."""
        due = next(self._copies.due(), None)
        for dropped in self._copies.dropped():
            self._drop(dropped)
        return due or self._by_turns(self._first_copy)

    def _first_copy(self, source: S) -> Arrival[M] | None:
        while not (self._in_order and self._copies.holds(source.name)) and (message := source.next()) is not None:
            arrival = Arrival(source.name, message)
            if self._copies.arrived(arrival):
                return arrival
            if self._copies.knows(arrival):
                self._drop(arrival)
        return None

    def _by_turns(self, ask: Callable[[S], Found | None]) -> Found | None:
        """Ask one broker after the other, starting after the one that last had something."""
        for _ in self._sources:
            if not self._turns[-1].in_hand:
                self._turns.rotate(-1)
            if (found := ask(self._turns[-1])) is not None:
                return found
        return None

    def _until_idle(self, ask: Callable[[], Found | None], wait: float | None) -> Generator[Found]:
        """Yield what is found until nothing was for `wait` seconds, or this reader is closed."""
        if wait is not None:
            check_seconds(wait, "wait")
        last = time.monotonic()
        while not self._closed.is_set():
            if (found := self._unless_closed(ask)) is not None:
                yield found
                last = time.monotonic()
                continue
            left = PAUSE if wait is None else last + wait - time.monotonic()
            if left <= 0:
                return
            self._closed.wait(min(PAUSE, left))

    def _unless_closed(self, ask: Callable[[], Found | None]) -> Found | None:
        with self._lock:
            return None if self._closed.is_set() else ask()

    def _or_follow(self, found: Found | None) -> Found | None:
        if found is None:
            try:
                self._require_unchanged()
            except StoreUnavailable as changed:
                logger.warning("%s", changed)
                self.reconnect()
        return found

    def _require_unchanged(self) -> None:
        """Raise `StoreUnavailable` if a broker went or came back since the last connection."""
        if (changes := self._members.changes) == self._changes:
            return
        there = self._members.available()
        gone, back = sorted({*self._active} - {*there}), sorted({*there} - {*self._active})
        if not gone and not back:
            self._changes = changes
            return
        said = [f"{name} became unavailable" for name in gone] + [f"{name} is back" for name in back]
        raise StoreUnavailable(f"{', '.join(said)}; reconnect() reads from {', '.join(there) or 'none'}")


class BrokerSession(Source[Consumer, Delivery]):
    """The consumer of one broker, and what it claimed last."""

    def __init__(self, name: str, members: Members, open: Callable[[Broker], Consumer]) -> None:
        super().__init__(name, members, open)
        self._claimed: deque[Delivery] = deque()

    @property
    def in_hand(self) -> bool:
        """Whether some of what it claimed last was not yet handed out."""
        return bool(self._claimed)

    def next(self) -> Delivery | None:
        """Return the next message; claim some if there is none in hand."""
        if not self._claimed:
            self._claimed.extend(self.ask(lambda: self.reader.receive(patience=0.0)) or ())
        return self._claimed.popleft() if self._claimed else None

    def close(self) -> None:
        """Give back what was not handed out."""
        _give_back(self._claimed)
        super().close()


class ClusterConsumer(ClusterReader[BrokerSession, Delivery]):
    """Receives messages from every broker of a cluster, for one member of a group."""

    def __init__(self, members: Members, open: Callable[[Broker], Consumer], copies: Copies[Delivery]) -> None:
        super().__init__(members, [BrokerSession(name, members, open) for name in members.names], copies)
        self._again: deque[Arrival[Delivery]] = deque()  # a connection error came before they were handed out

    def receive(self, count: int = 1, *, wait: float = 0.0) -> list[Arrival[Delivery]]:
        """Take up to `count` messages, each with its broker; raise `StoreUnavailable` if a broker went or came back."""
        check_count(count, "count")
        return next(self._until_idle(lambda: self._received(count), wait), [])

    def close(self) -> None:
        """Give back what was not handed out; running iterations end."""
        self._closed.set()
        with self._lock:
            _give_back(arrival.message for arrival in self._again)
            for name in self._sources:
                _give_back(arrival.message for arrival in self._copies.give_up(name))
        super().close()

    def _received(self, count: int) -> list[Arrival[Delivery]] | None:
        found: list[Arrival[Delivery]] = []
        with on_failure(lambda: self._again.extendleft(reversed(found))):
            found += islice(iter(self._next, None), count)
            self._require_unchanged()
        return found or None

    def _next(self) -> Arrival[Delivery] | None:
        return self._again.popleft() if self._again else super()._next()

    def _drop(self, arrival: Arrival[Delivery]) -> None:
        with suppress(TxSagaError):  # it is delivered again, and dropped then
            arrival.message.ack()


def _give_back(messages: Iterable[Delivery]) -> None:
    for message in messages:
        with suppress(TxSagaError):
            message.give_back()


class BrokerCursor(Source[Stream, Delivered]):
    """The stream of one broker, and the unread part of its current chunk, which is kept between loops."""

    _left: Generator[Delivered] | None = None
    _passed: Batch | None = None
    """Read completely, not yet committed."""

    def next(self) -> Delivered | None:
        """Return the next message; commit the chunk before it."""
        return self.ask(self._next)

    def poll(self) -> Batch | None:
        """Return the next chunk, if the broker is reachable and has one."""
        return self.ask(self._chunk)

    def read_again(self) -> None:
        """Read the current chunk again."""
        if self._left is not None:
            self._left.close()

    def _next(self) -> Delivered | None:
        while self._left is None or (message := next(self._left, None)) is None:
            if (batch := self._chunk()) is None:
                return None
            self._left = self._read(batch)
        return message

    def _read(self, batch: Batch) -> Generator[Delivered]:
        yield from self.reader.read(batch)
        self._passed = batch

    def _chunk(self) -> Batch | None:
        if self._passed is not None:
            self._commit(self._passed)
        return self.reader.poll()

    def _commit(self, batch: Batch) -> None:
        try:
            self.reader.commit(batch)
        except LeaseLost as lost:  # unavailable for longer than its lease: the next reader gets the chunk again
            logger.warning("broker %r: %s", self.name, lost)
        self._passed = None


class ClusterStream(ClusterReader[BrokerCursor, Delivered]):
    """Reads topics from every broker of a cluster, for one member of a group."""

    _in_order = True

    def __init__(self, members: Members, open: Callable[[Broker], Stream], copies: Copies[Delivered]) -> None:
        super().__init__(members, [BrokerCursor(name, members, open) for name in members.names], copies)

    def poll(self) -> Batch | None:
        """Return the next chunk of any broker; raise `StoreUnavailable` if a broker went or came back."""
        if self._closed.is_set():
            raise LeaseLost("this stream of a cluster is closed; open another with cluster.stream")
        if (found := self._unless_closed(self._next_chunk)) is None:
            self._require_unchanged()
        return found

    def batches(self, *, wait: float | None = None) -> Iterator[Batch]:
        """Yield chunks as columns, including copies, without committing; end after `wait` idle seconds."""
        return self._until_idle(lambda: self._or_follow(self._next_chunk()), wait)

    def commit(self, batch: Batch, *, upto: int | None = None) -> None:
        """Move the cursor past a chunk, on the broker that it came from."""
        self._of(batch).commit(batch, upto=upto)

    def bind(self, transaction: Consuming, batch: Batch) -> None:
        """Make a transaction's decision move the cursor past a chunk (`tx.consume`)."""
        self._of(batch).bind(transaction, batch)

    def _of(self, batch: Batch) -> Stream:
        check_kind(batch, Batch, "the chunk", A_CHUNK)
        if (name := self._members.of_store(batch.store.uuid)) is None:
            raise TransactionError(f"the chunk is in store {batch.store}, which is not part of this cluster")
        return self._sources[name].reader

    def _next_chunk(self) -> Batch | None:
        return self._by_turns(self._chunk)

    def _chunk(self, source: BrokerCursor) -> Batch | None:
        self._read_again(source)
        return source.poll()

    def _failed(self, arrival: Arrival[Delivered]) -> None:
        self._read_again(self._sources[arrival.broker])
        self._copies.failed(arrival)

    def _read_again(self, source: BrokerCursor) -> None:
        source.read_again()
        self._copies.give_up(source.name)
