"""
Whose turn it is in a cluster: a policy for each cluster of the tree, asked from the outside in.

Ask once for a transaction, once for a plain message. What was chosen is the node list that later messages may be pinned
to. If this is lost, nothing is: the turns begin anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from txsaga.errors import BadDestination, PinRefused, TooFewBrokers, TxSagaError
from txsaga.model.arguments import list_of
from txsaga.model.cluster import Cluster, check
from txsaga.model.policies import MADE, PolicyName


class Chooser:
    """Chooses brokers of one cluster, as its policy says."""

    def __init__(self, cluster: Cluster, generator: Random, *, checked: bool = False) -> None:
        if not checked:
            check(cluster)
        inner = [each for each in cluster.brokers if isinstance(each, Cluster)]
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
