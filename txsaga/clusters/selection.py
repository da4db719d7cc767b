"""
Who takes the next message or transaction: the policy, asked for those that are there, by one thread at a time.

It moves once for each plain message and once for each transaction, whatever that sends. A node list pins what it comes
with; nothing else is tried then. It sends nothing.
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
    """Chooses brokers of one cluster, as its policy says."""

    def __init__(self, cluster: ClusterConfig, generator: Random, *, checked: bool = False) -> None:
        if not checked:
            check(cluster)
        inner = [each for each in cluster.brokers if isinstance(each, ClusterConfig)]
        self.cluster = cluster
        self._policy = MADE[PolicyName(cluster.policy)](cluster, generator)
        self._inner = {each.name: Chooser(each, generator, checked=True) for each in inner}

    def choose(self, available: Collection[str]) -> tuple[str, ...]:
        """Return who takes the next transaction or plain message; `TooFewBrokers` when too few are available."""
        if not self._inner:
            return self._policy.choose(available)
        alive = [name for name, each in self._inner.items() if not set(available).isdisjoint(each.cluster.leaves())]
        return tuple(broker for name in self._policy.choose(alive) for broker in self._inner[name].choose(available))

    def pinned(self, nodes: Sequence[str], available: Collection[str]) -> tuple[str, ...]:
        """Return the brokers of a node list; the turns stay where they are, and no other broker is tried."""
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
        """Return the brokers that accepted; raise when they are too few, whereupon none may keep what it took."""
        took = tuple(name for name, error in answers.items() if error is None)
        if self._enough(set(took)):
            return took
        said = "; ".join(f"{name}: {error}" for name, error in answers.items() if error is not None)
        may = {name for name, error in answers.items() if error is None or error.retryable}
        kind = TooFewBrokers if self._enough(may) else BadDestination
        raise kind(f"{len(took)} of {len(answers)} brokers of cluster {self.cluster.name!r} accepted ({said})")

    def reconnect(self) -> None:
        """Take note that the client connects anew."""
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
        """Tell whether what is sent must reach several brokers or none, which takes a transaction each time."""
        return PolicyName.GUARANTEED in self.policies

    @property
    def makes_copies(self) -> bool:
        """Tell whether one message is sent to several brokers."""
        return not self.policies.isdisjoint(MANY)

    def choose(self, nodes: Sequence[str] | None = None, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Return who takes what comes next; `TooFewBrokers` when too few are there, `PinRefused` for a node list."""
        available = self._members.available() if among is None else among
        with self._lock:
            return self._chooser.choose(available) if nodes is None else self._chooser.pinned(nodes, available)

    def accepted(self, answers: Mapping[str, TxSagaError | None]) -> tuple[str, ...]:
        """Return the brokers that accepted; raise when they are too few."""
        return self._chooser.accepted(answers)

    def reconnect(self) -> None:
        """Begin anew where the policy holds on to a broker, and look at those that were away."""
        self._members.look_again()
        with self._lock:
            self._chooser.reconnect()


def _policies(cluster: ClusterConfig) -> list[PolicyName]:
    inner = [each for each in cluster.brokers if isinstance(each, ClusterConfig)]
    return [PolicyName(cluster.policy), *(policy for each in inner for policy in _policies(each))]
