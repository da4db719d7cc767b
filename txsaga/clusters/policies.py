"""
Cluster policies: which brokers take the next transaction, or the next plain message.

A policy advances with each call, so it is called once for a transaction, however much that sends, and once for each
plain message. It knows names and an order, not connections: the available brokers are passed in, and unknown names are
ignored. It has no lock; callers that share one between threads provide it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Protocol

from txsaga.errors import TooFewBrokers


class PolicyName(StrEnum):
    """The policies."""

    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"
    RANDOM = "random"
    WEIGHTED = "weighted-round-robin"
    BEST_EFFORT = "multisend-best-effort"
    GUARANTEED = "multisend-guaranteed"


ABOUT: Mapping[PolicyName, tuple[str, str]] = {
    PolicyName.ROUND_ROBIN: ("the next available broker in order", "the one that was chosen"),
    PolicyName.STICKY: ("the first broker; when it fails the next, and that one as long as it lives", "that one"),
    PolicyName.RANDOM: ("any available broker, each as likely", "the one that was chosen"),
    PolicyName.WEIGHTED: ("available brokers in the proportion of their weights", "the one that was chosen"),
    PolicyName.BEST_EFFORT: ("all available brokers, or the first `most` of them", "one of them"),
    PolicyName.GUARANTEED: ("all available brokers, `needed` of them at least", "`needed` of them"),
}
"""What each policy sends to, and which brokers must accept."""


class ClusterPolicy(Protocol):
    """Chooses brokers."""

    @property
    def needed(self) -> int:
        """How many of the chosen brokers must accept."""

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Choose brokers for the next send, and advance; raise `TooFewBrokers` if too few are available."""

    def reconnect(self) -> None:
        """Handle a reconnect of the client."""


class RoundRobin:
    """One after the other; an unavailable broker is skipped and used again when it is back."""

    needed = 1

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._next = 0

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the next available broker."""
        turned = (*self._names[self._next :], *self._names[: self._next])
        chosen = _there(turned, available)[0]
        self._next = (self._names.index(chosen) + 1) % len(self._names)
        return (chosen,)

    def reconnect(self) -> None:
        """Do nothing: the rotation continues."""


class Sticky:
    """The first broker; when it fails the next, which is kept until it fails or the client reconnects."""

    needed = 1

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._held = 0

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the current broker, or the next available one after it."""
        turned = (*self._names[self._held :], *self._names[: self._held])
        chosen = _there(turned, available)[0]
        self._held = self._names.index(chosen)
        return (chosen,)

    def reconnect(self) -> None:
        """Return to the first."""
        self._held = 0


class Randomly:
    """Any available broker; the generator is the caller's, so that choices are reproducible."""

    needed = 1

    def __init__(self, names: Sequence[str], generator: Random) -> None:
        self._names = tuple(names)
        self._generator = generator

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return one of the available brokers."""
        return (self._generator.choice(_there(self._names, available)),)

    def reconnect(self) -> None:
        """Do nothing: there is no state."""


class WeightedRoundRobin:
    """In turn, in proportion to the weights, spread evenly over the cycle.

    Each call adds its weight to the savings of every available broker; the one with most is chosen and pays the weights
    of all. A broker that was unavailable neither saved nor paid, so it comes back without a burst.
    """

    needed = 1

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._saved = dict.fromkeys(weights, 0)

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the available broker with the most savings."""
        there = _there(tuple(self._weights), available)
        for name in there:
            self._saved[name] += self._weights[name]
        chosen = max(there, key=self._saved.__getitem__)
        self._saved[chosen] -= sum(self._weights[name] for name in there)
        return (chosen,)

    def reconnect(self) -> None:
        """Do nothing: the rotation continues."""


class Multisend:
    """All available brokers, or the first of them; `needed` of them must accept."""

    def __init__(self, names: Sequence[str], *, needed: int = 1, most: int | None = None) -> None:
        self._names = tuple(names)
        self._most = most
        self.needed = needed

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return all available brokers, up to the maximum."""
        return _there(self._names, available, self.needed)[: self._most]

    def reconnect(self) -> None:
        """Do nothing: there is no state."""


class Terms(Protocol):
    """The parameters of a policy."""

    @property
    def weights(self) -> Mapping[str, int]:
        """The brokers in order, with their weights."""

    @property
    def needed(self) -> int | None:
        """How many must accept a guaranteed multisend."""

    @property
    def most(self) -> int | None:
        """How many brokers a best-effort multisend sends to."""


MADE: Mapping[PolicyName, Callable[[Terms, Random], ClusterPolicy]] = {
    PolicyName.ROUND_ROBIN: lambda terms, _: RoundRobin(tuple(terms.weights)),
    PolicyName.STICKY: lambda terms, _: Sticky(tuple(terms.weights)),
    PolicyName.RANDOM: lambda terms, generator: Randomly(tuple(terms.weights), generator),
    PolicyName.WEIGHTED: lambda terms, _: WeightedRoundRobin(terms.weights),
    PolicyName.BEST_EFFORT: lambda terms, _: Multisend(tuple(terms.weights), most=terms.most),
    PolicyName.GUARANTEED: lambda terms, _: Multisend(tuple(terms.weights), needed=terms.needed or 1),
}
"""The constructors of the policies."""


def _there(names: Sequence[str], available: Collection[str], needed: int = 1) -> tuple[str, ...]:
    there = tuple(name for name in names if name in available)
    if len(there) < needed:
        raise TooFewBrokers(
            f"{len(there)} of {len(names)} brokers ({', '.join(names)}) are available and {needed} are needed; "
            "try again when more are back"
        )
    return there
