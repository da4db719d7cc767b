"""
The choice of brokers for the next message or transaction: the policy, applied to those that are reachable.

One thread chooses at a time. The policy advances once for each plain message and once for each transaction, however
much that sends. A node list pins its message; no other broker is tried then. Nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from threading import Lock

from txsaga.clusters.config import ClusterConfig, check
from txsaga.clusters.members import Members
from txsaga.clusters.policies import MADE, PolicyName
from txsaga.core.arguments import list_of
from txsaga.errors import BadDestination, PinRefused, TooFewBrokers, TxSagaError


class Chooser:
    """Chooses brokers of one cluster by its policy."""

    def __init__(self, cluster: ClusterConfig, generator: Random, *, checked: bool = False) -> None:
        if not checked:
            check(cluster)
        inner = [each for each in cluster.brokers if isinstance(each, ClusterConfig)]
        self.cluster = cluster
        self._policy = MADE[PolicyName(cluster.policy)](cluster, generator)
        self._inner = {each.name: Chooser(each, generator, checked=True) for each in inner}

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Choose brokers for the next transaction or plain message; raise `TooFewBrokers` if too few are available."""
        if not self._inner:
            return self._policy.choose(available)
        alive = [name for name, each in self._inner.items() if not set(available).isdisjoint(each.cluster.leaves())]
        return tuple(broker for name in self._policy.choose(alive) for broker in self._inner[name].choose(available))

    def pinned(self, nodes: Sequence[str], available: Collection[str]) -> tuple[str, ...]:
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
        absent = [node for node in nodes if node not in available]
        if absent:
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
        """Handle a reconnect of the client."""
        self._policy.reconnect()
        for each in self._inner.values():
            each.reconnect()

    def _enough(self, took: set[str]) -> bool:
        if not self._inner:
            return len(took & set(self.cluster.leaves())) >= self._policy.needed
        return sum(each._enough(took) for each in self._inner.values()) >= self._policy.needed


MANY = (PolicyName.BEST_EFFORT, PolicyName.GUARANTEED)


class Selection:
    """Chooses among the brokers of one cluster."""

    def __init__(self, cluster: ClusterConfig, members: Members, generator: Random, new_id: Callable[[], str]) -> None:
        self.cluster, self._members, self.new_id = cluster, members, new_id
        self._chooser, self._lock = Chooser(cluster, generator), Lock()
        self.policies = frozenset(_policies(cluster))

    @property
    def guaranteed(self) -> bool:
        """Return whether each send must reach several brokers or none, which needs a transaction."""
        return PolicyName.GUARANTEED in self.policies

    @property
    def makes_copies(self) -> bool:
        """Return whether one message is sent to several brokers."""
        return not self.policies.isdisjoint(MANY)

    def choose(self, nodes: Sequence[str] | None = None, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Choose brokers for the next send; raise `TooFewBrokers`, or `PinRefused` for a node list."""
        available = self._members.available() if among is None else among
        with self._lock:
            return self._chooser.choose(available) if nodes is None else self._chooser.pinned(nodes, available)

    def accepted(self, answers: Mapping[str, TxSagaError | None]) -> tuple[str, ...]:
        """Return the brokers that accepted; raise if they are too few."""
        return self._chooser.accepted(answers)

    def reconnect(self) -> None:
        """Reset policies that stick to a broker, and probe unavailable ones again."""
        self._members.look_again()
        with self._lock:
            self._chooser.reconnect()


def _policies(cluster: ClusterConfig) -> list[PolicyName]:
    inner = [each for each in cluster.brokers if isinstance(each, ClusterConfig)]
    return [PolicyName(cluster.policy), *(policy for each in inner for policy in _policies(each))]
