"""
Copies of one message on several brokers, and how a reader of all of them sees it once.

Each copy carries the same id and the name of its primary broker. The primary's copy is handed out at once. Others are
held back: dropped when a copy of another broker was handed out, and handed out themselves when the primary has shown
none for the tentative time. What was handed out is remembered for the confirmed time; a copy that comes later than
that is absorbed by whoever uses the id as key. Nothing of this is durable: exactly once is not promised if a reader or
a broker dies meanwhile.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from txsaga.core.message import Message

COPY, PRIMARY = "txsaga-copy", "txsaga-primary"


def as_copy(message: Message, primary: str, new_id: Callable[[], str]) -> Message:
    """Mark a message that is sent to several brokers; one that has an id of its own keeps it."""
    headers = dict(message.headers or {})
    id = headers.get(COPY) or message.unique_key or new_id()
    return replace(message, headers={**headers, COPY: id, PRIMARY: primary}, unique_key=message.unique_key or id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """How long copies wait, in seconds."""

    tentative: float = 5.0
    confirmed: float = 600.0


class MarkedCopy(Protocol):
    """A message that a reader is given."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What it carries beside its body."""


M = TypeVar("M", bound=MarkedCopy)


class Arrival(NamedTuple, Generic[M]):
    """A message and the broker that it came from."""

    broker: str
    message: M

    @property
    def copy(self) -> str | None:
        """What all copies of a message share."""
        return self.message.headers.get(COPY)


class HeldCopy(NamedTuple, Generic[M]):
    """A copy that waits for the primary's, and until when."""

    until: float
    arrival: Arrival[M]


class Copies(Generic[M]):
    """Sees that one of several copies is handed out."""

    def __init__(self, timers: Timers, clock: Callable[[], float] = time.monotonic) -> None:
        self._timers, self._clock = timers, clock
        self._seen: OrderedDict[str, tuple[str, float]] = OrderedDict()  # from which broker, and until when
        self._held: deque[HeldCopy[M]] = deque()  # in the order of their times

    def arrived(self, arrival: Arrival[M]) -> bool:
        """Tell whether a message is to be handed out now; what is not is held back, or dropped."""
        self._forget()
        if arrival.copy is None:
            return True
        if self._is_known(arrival):
            return False
        if arrival.message.headers.get(PRIMARY) != arrival.broker:
            self._held.append(HeldCopy(self._clock() + self._timers.tentative, arrival))
            return False
        self._remember(arrival)
        return True

    def due(self) -> Iterator[Arrival[M]]:
        """Yield what was held back and whose primary has shown nothing for too long."""
        for _ in range(len(self._held)):
            if self._held[0].until > self._clock():
                return
            held = self._held.popleft()
            if self._is_known(held.arrival):
                self._held.append(held)  # `dropped` tells of it
            else:
                self._remember(held.arrival)
                yield held.arrival

    def dropped(self) -> Iterator[Arrival[M]]:
        """Yield what was held back and was handed out by another broker meanwhile."""
        for _ in range(len(self._held)):
            held = self._held.popleft()
            if self._is_known(held.arrival):
                yield held.arrival
            else:
                self._held.append(held)

    def failed(self, arrival: Arrival[M]) -> None:
        """Count a message that was handed out in vain as not seen: the copy that comes first is handed out again."""
        self._seen.pop(arrival.copy or "", None)

    def give_up(self, broker: str) -> None:
        """Forget what a broker's reader holds back: it comes again."""
        self._held = deque(held for held in self._held if held.arrival.broker != broker)

    def knows(self, arrival: Arrival[M]) -> bool:
        """Tell whether another broker's copy was handed out."""
        return arrival.copy is not None and self._is_known(arrival)

    def _is_known(self, arrival: Arrival[M]) -> bool:
        # What comes again from the same broker is the same copy, put back by its reader.
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
