"""
Who takes the next message or transaction: the policy, asked for those that are there, by one thread at a time.

It moves once for each plain message and once for each transaction, whatever that sends. A node list pins what it comes
with; nothing else is tried then. It sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from threading import Lock

from txsaga.engine.cluster.members import Members
from txsaga.errors import TxSagaError
from txsaga.model.choosing import Chooser
from txsaga.model.cluster import Cluster
from txsaga.model.policies import PolicyName

MANY = (PolicyName.BEST_EFFORT, PolicyName.GUARANTEED)


class Selection:
    """Chooses among the brokers of one cluster."""

    def __init__(self, cluster: Cluster, members: Members, generator: Random, new_id: Callable[[], str]) -> None:
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


def _policies(cluster: Cluster) -> list[PolicyName]:
    inner = [each for each in cluster.brokers if isinstance(each, Cluster)]
    return [PolicyName(cluster.policy), *(policy for each in inner for policy in _policies(each))]
