"""
Cluster policies: which brokers take the next transaction, or the next plain message.

A policy advances with each call, so it is called once for a transaction, however much that sends, and once for each
plain message. It knows names and an order, not connections: the available brokers are passed in, and unknown names are
ignored. It has no lock; callers that share one between threads provide it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from random import Random

from txsaga.errors import TooFewBrokers


class PolicyName(StrEnum):
    """The policies."""

    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"
    RANDOM = "random"
    WEIGHTED = "weighted-round-robin"
    BEST_EFFORT = "multisend-best-effort"
    GUARANTEED = "multisend-guaranteed"


class ClusterPolicy(ABC):
    """Chooses brokers."""

    needed = 1
    """How many of the chosen brokers must accept."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    @abstractmethod
    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Choose brokers for the next send, and advance; raise `TooFewBrokers` if too few are available."""

    def reconnect(self) -> None:  # noqa: B027  # most policies have nothing to reset
        """Handle a reconnect of the client."""

    def _there(self, available: Collection[str]) -> tuple[str, ...]:
        there = tuple(name for name in self._names if name in available)
        if len(there) < self.needed:
            raise TooFewBrokers(
                f"{len(there)} of {len(self._names)} brokers ({', '.join(self._names)}) are available and "
                f"{self.needed} are needed; try again when more are back"
            )
        return there


class RoundRobin(ClusterPolicy):
    """One after the other; an unavailable broker is skipped and used again when it is back."""

    _first = 0  # where the next choice begins
    _step = 1

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the next available broker."""
        there = self._there(available)
        turned = (*self._names[self._first :], *self._names[: self._first])
        chosen = next(name for name in turned if name in there)
        self._first = (self._names.index(chosen) + self._step) % len(self._names)
        return (chosen,)


class Sticky(RoundRobin):
    """The first broker; when it fails the next, which is kept until it fails or the client reconnects."""

    _step = 0

    def reconnect(self) -> None:
        """Return to the first."""
        self._first = 0


class Randomly(ClusterPolicy):
    """Any available broker; the generator is the caller's, so that choices are reproducible."""

    def __init__(self, names: Iterable[str], generator: Random) -> None:
        super().__init__(names)
        self._generator = generator

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return one of the available brokers."""
        return (self._generator.choice(self._there(available)),)


class WeightedRoundRobin(ClusterPolicy):
    """In turn, in proportion to the weights, spread evenly over the cycle.

    Each call adds its weight to the savings of every available broker; the one with most is chosen and pays the weights
    of all. A broker that was unavailable neither saved nor paid, so it comes back without a burst.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        super().__init__(weights)
        self._weights = dict(weights)
        self._saved = dict.fromkeys(weights, 0)

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the available broker with the most savings."""
        there = self._there(available)
        for name in there:
            self._saved[name] += self._weights[name]
        chosen = max(there, key=self._saved.__getitem__)
        self._saved[chosen] -= sum(self._weights[name] for name in there)
        return (chosen,)


class Multisend(ClusterPolicy):
    """All available brokers, or the first of them; `needed` of them must accept."""

    def __init__(self, names: Iterable[str], *, needed: int = 1, most: int | None = None) -> None:
        super().__init__(names)
        self.needed, self._most = needed, most

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return all available brokers, up to the maximum."""
        return self._there(available)[: self._most]
