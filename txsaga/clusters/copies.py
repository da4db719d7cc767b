"""
Copies of one message on several brokers, and how a reader of all of them sees it once.

Each copy carries the same id and the name of its primary broker. The primary's copy is delivered at once. Others are
held back: dropped if another broker's copy was delivered, and delivered themselves if the primary has shown none for
the tentative time. A delivery is remembered for the confirmed time; for a copy that arrives later, the application must
use the id as key. Nothing of this is durable: exactly once is not promised if a reader or a broker dies meanwhile.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Generic, NamedTuple, Protocol, TypeVar

from txsaga.core.message import Message

COPY, PRIMARY = "txsaga-copy", "txsaga-primary"


def as_copy(message: Message, primary: str) -> Message:
    """Mark a message that is sent to several brokers; one that already has an id keeps it."""
    headers = dict(message.headers or {})
    id = headers.get(COPY) or message.unique_key or token_hex(16)
    return replace(message, headers={**headers, COPY: id, PRIMARY: primary}, unique_key=message.unique_key or id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """How long copies are held and remembered, in seconds."""

    tentative: float = 5.0
    confirmed: float = 600.0


class MarkedCopy(Protocol):
    """A message that a reader receives."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the message."""


M = TypeVar("M", bound=MarkedCopy)


class Arrival(NamedTuple, Generic[M]):
    """A message and the broker that it came from."""

    broker: str
    message: M

    @property
    def copy(self) -> str | None:
        """The id that all copies of a message share."""
        return self.message.headers.get(COPY)


class HeldCopy(NamedTuple, Generic[M]):
    """A copy that waits for the primary's, and its deadline."""

    until: float
    arrival: Arrival[M]


class Copies(Generic[M]):
    """Ensures that one of several copies is delivered."""

    def __init__(self, timers: Timers, clock: Callable[[], float] = time.monotonic) -> None:
        self._timers, self._clock = timers, clock
        self._seen: OrderedDict[str, tuple[str, float]] = OrderedDict()  # broker of the copy, time to forget it
        self._held: deque[HeldCopy[M]] = deque()  # in the order of their deadlines

    def arrived(self, arrival: Arrival[M]) -> bool:
        """Return whether to deliver a message now; if not, it is held back, or is to be dropped."""
        self._forget()
        if arrival.copy is None:
            return True
        if self.knows(arrival):
            return False
        if arrival.message.headers.get(PRIMARY) != arrival.broker:
            self._held.append(HeldCopy(self._clock() + self._timers.tentative, arrival))
            return False
        self._remember(arrival)
        return True

    def due(self) -> Iterator[Arrival[M]]:
        """Yield copies that were held back and whose primary has shown none in time."""
        for _ in range(len(self._held)):
            if self._held[0].until > self._clock():
                return
            held = self._held.popleft()
            if self.knows(held.arrival):
                self._held.append(held)  # for `dropped` to yield
            else:
                self._remember(held.arrival)
                yield held.arrival

    def dropped(self) -> Iterator[Arrival[M]]:
        """Yield copies that were held back and have since been delivered by another broker."""
        for _ in range(len(self._held)):
            held = self._held.popleft()
            if self.knows(held.arrival):
                yield held.arrival
            else:
                self._held.append(held)

    def failed(self, arrival: Arrival[M]) -> None:
        """Treat a message whose processing failed as not seen: the copy that arrives first is delivered again."""
        self._seen.pop(arrival.copy or "", None)

    def holds(self, broker: str) -> bool:
        """Return whether a copy from a broker is held back."""
        return any(held.arrival.broker == broker for held in self._held)

    def give_up(self, broker: str) -> list[Arrival[M]]:
        """Forget the copies held back from a broker, and return them: its reader gets them again."""
        given_up = [held.arrival for held in self._held if held.arrival.broker == broker]
        self._held = deque(held for held in self._held if held.arrival.broker != broker)
        return given_up

    def knows(self, arrival: Arrival[M]) -> bool:
        """Return whether another broker's copy was delivered."""
        # A second arrival from the same broker is the same copy, returned by its reader.
        seen = self._seen.get(arrival.copy or "")
        return seen is not None and seen[0] != arrival.broker

    def _remember(self, arrival: Arrival[M]) -> None:
        assert arrival.copy is not None
        self._seen[arrival.copy] = arrival.broker, self._clock() + self._timers.confirmed
        self._seen.move_to_end(arrival.copy)

    def _forget(self) -> None:
        now = self._clock()
        while self._seen and next(iter(self._seen.values()))[1] <= now:
            self._seen.popitem(last=False)
