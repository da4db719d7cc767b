"""
The choice of brokers for the next message or transaction: the policy, applied to those that are reachable.

One thread chooses at a time. The policy advances once for each plain message and once for each transaction, however
much that sends. A node list pins its message; no other broker is tried then. Nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from threading import RLock

from txsaga.clusters.config import ClusterConfig, check
from txsaga.clusters.policies import (
    ClusterPolicy,
    Multisend,
    PolicyName,
    Randomly,
    RoundRobin,
    Sticky,
    WeightedRoundRobin,
)
from txsaga.core.arguments import list_of
from txsaga.errors import BadDestination, PinRefused, TooFewBrokers, TxSagaError

MADE: Mapping[PolicyName, Callable[[ClusterConfig, Random], ClusterPolicy]] = {
    PolicyName.ROUND_ROBIN: lambda cluster, _: RoundRobin(cluster.weights),
    PolicyName.STICKY: lambda cluster, _: Sticky(cluster.weights),
    PolicyName.RANDOM: lambda cluster, generator: Randomly(cluster.weights, generator),
    PolicyName.WEIGHTED: lambda cluster, _: WeightedRoundRobin(cluster.weights),
    PolicyName.BEST_EFFORT: lambda cluster, _: Multisend(cluster.weights, most=cluster.most),
    PolicyName.GUARANTEED: lambda cluster, _: Multisend(cluster.weights, needed=cluster.needed or 1),
}
"""How each policy is made for a cluster."""


class Chooser:
    """Chooses brokers of one cluster, or of the clusters in it, by its policy."""

    def __init__(self, cluster: ClusterConfig, generator: Random, *, checked: bool = False) -> None:
        if not checked:
            check(cluster)
        self.cluster, self._lock = cluster, RLock()
        self._policy = MADE[PolicyName(cluster.policy)](cluster, generator)
        self._inner = {each.name: Chooser(each, generator, checked=True) for each in cluster.inner}

    @property
    def policies(self) -> frozenset[PolicyName]:
        """The policies of its cluster and the clusters in it."""
        return frozenset([PolicyName(self.cluster.policy)]).union(*(each.policies for each in self._inner.values()))

    def choose(self, available: Collection[str], nodes: Sequence[str] | None = None) -> tuple[str, ...]:
        """Choose brokers for the next send; raise `TooFewBrokers`, or `PinRefused` for a node list."""
        if nodes is not None:
            return self._pinned(nodes, available)
        with self._lock:
            if not self._inner:
                return self._policy.choose(available)
            alive = [name for name, each in self._inner.items() if not set(available).isdisjoint(each.cluster.leaves())]
            chosen = self._policy.choose(alive)
            return tuple(broker for name in chosen for broker in self._inner[name].choose(available))

    def accepted(self, answers: Mapping[str, TxSagaError | None]) -> tuple[str, ...]:
        """Return the brokers that accepted; raise if they are too few, and then none may keep the message."""
        took = tuple(name for name, error in answers.items() if error is None)
        if self._enough(set(took)):
            return took
        said = "; ".join(f"{name}: {error}" for name, error in answers.items() if error is not None)
        may = {name for name, error in answers.items() if error is None or error.retryable}
        kind = TooFewBrokers if self._enough(may) else BadDestination
        raise kind(f"{len(took)} of {len(answers)} brokers of cluster {self.cluster.name!r} accepted ({said})")

    def reconnect(self) -> None:
        """Reset policies that stick to a broker."""
        with self._lock:
            self._policy.reconnect()
            for each in self._inner.values():
                each.reconnect()

    def _pinned(self, nodes: Sequence[str], available: Collection[str]) -> tuple[str, ...]:
        """Return the brokers of a node list; the policy does not advance, and no other broker is tried."""
        name = self.cluster.name
        if not self.cluster.override:
            raise PinRefused(f"cluster {name!r} takes no node lists; set override, or send without one")
        nodes, known = list_of(nodes, "nodes", "give a list of names of brokers"), tuple(self.cluster.leaves())
        unknown = [str(node) for node in nodes if node not in known]
        if unknown or not nodes:
            raise PinRefused(
                f"{', '.join(unknown) or 'an empty node list'} names no broker of cluster {name!r}; "
                f"it has {', '.join(known)}"
            )
        if absent := [node for node in nodes if node not in available]:
            raise PinRefused(
                f"{', '.join(absent)} of cluster {name!r} is not available, and the message is pinned to it; "
                "wait for it, or send without a node list"
            )
        if not self._enough(set(nodes)):
            raise PinRefused(
                f"the node list {', '.join(nodes)} has fewer brokers than cluster {name!r} needs; "
                "name more of them, or send without one"
            )
        return tuple(dict.fromkeys(nodes))

    def _enough(self, took: set[str]) -> bool:
        if not self._inner:
            return len(took & set(self.cluster.leaves())) >= self._policy.needed
        return sum(each._enough(took) for each in self._inner.values()) >= self._policy.needed
