"""
The definition of a cluster: brokers in order and the policy that chooses; a composite is a cluster of clusters.

Plain data and its validation. Nothing here connects to a broker or keeps a policy's position (`selection`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple
from uuid import UUID

from txsaga.clusters.policies import PolicyName
from txsaga.core.arguments import check_kind
from txsaga.errors import ConfigError

SETTINGS: Mapping[str, type] = {"policy": str, "xa": bool, "override": bool, "needed": int, "most": int}
WHOLE = "weights are whole numbers, 1 or more"


class Fault(NamedTuple):
    """An error in a definition, and its remedy."""

    subject: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject} {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBroker:
    """One broker of a cluster."""

    name: str
    weight: int | None = None  # None counts as 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Brokers, or clusters, and a policy."""

    name: str
    brokers: tuple[ClusterBroker | ClusterConfig, ...] = ()
    policy: str = ""
    xa: bool = False  # each broker takes part in two-phase commit
    override: bool = False  # a message may bring the node list of an earlier one
    needed: int | None = None  # guaranteed multisend: how many must accept
    most: int | None = None  # best-effort multisend: how many are sent to

    @property
    def inner(self) -> tuple[ClusterConfig, ...]:
        """The clusters in it, if it is a composite."""
        return tuple(each for each in self.brokers if isinstance(each, ClusterConfig))

    @property
    def weights(self) -> Mapping[str, int]:
        """The weights of what it chooses among, in order; a cluster weighs 1."""
        return {each.name: self.given.get(each.name, 1) for each in self.brokers}

    @property
    def given(self) -> Mapping[str, int]:
        """The weights that were given explicitly."""
        brokers = (each for each in self.brokers if isinstance(each, ClusterBroker))
        return {each.name: each.weight for each in brokers if each.weight is not None}

    def leaves(self) -> Iterator[str]:
        """Yield the names of its brokers, including those of its clusters."""
        for each in self.brokers:
            yield from each.leaves() if isinstance(each, ClusterConfig) else (each.name,)


def read(name: str, settings: Mapping[str, object]) -> ClusterConfig:
    """Read a cluster from settings: `brokers` as a list or with weights, or `clusters` by name, and a policy."""
    cluster = _read(name, settings)
    check(cluster)
    return cluster


def _read(name: str, settings: Mapping[str, object]) -> ClusterConfig:
    check_kind(settings, Mapping, f"cluster {name!r}", "give its settings by name")
    known = ("brokers", "clusters", *SETTINGS)
    if unknown := sorted(settings.keys() - set(known)):
        raise ConfigError(f"cluster {name!r} has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    said = {setting: settings[setting] for setting in SETTINGS if setting in settings}
    for setting, value in said.items():
        kind = SETTINGS[setting]
        check_kind(value, kind, f"{setting} of cluster {name!r}", f"give a value of type {kind.__name__}")
    brokers, clusters = settings.get("brokers", ()), settings.get("clusters", {})
    check_kind(clusters, Mapping, f"clusters of cluster {name!r}", "give the settings of each by its name")
    inner = (_read(each, of) for each, of in clusters.items())  # type: ignore[attr-defined]  # it is a mapping
    return ClusterConfig(name=name, brokers=(*_listed(name, brokers), *inner), **said)  # type: ignore[arg-type]  # checked


def _listed(name: str, brokers: object) -> Iterator[ClusterBroker]:
    advice = "give a list of names, or a weight for each name"
    check_kind(brokers, (list, tuple, Mapping), f"brokers of cluster {name!r}", advice)
    for each in brokers:  # type: ignore[attr-defined]  # it is a list or a mapping
        check_kind(each, str, f"a broker of cluster {name!r}", advice)
        if isinstance(brokers, Mapping):
            check_kind(brokers[each], int, f"the weight of broker {each!r}", WHOLE)
        yield ClusterBroker(name=each, weight=brokers[each] if isinstance(brokers, Mapping) else None)


def check(cluster: ClusterConfig) -> None:
    """Raise `ConfigError` with all errors in a cluster definition."""
    if found := [str(fault) for fault in faults(cluster)]:
        raise ConfigError(". ".join(found))


def faults(cluster: ClusterConfig) -> Iterator[Fault]:
    """Yield the errors in a cluster and the clusters in it."""
    if twice := [name for name, times in Counter(cluster.leaves()).items() if times > 1]:
        yield Fault(f"cluster {cluster.name!r}", f"names {', '.join(twice)} twice", "list each broker once")
    yield from _faults(cluster, cluster.xa)


def _faults(cluster: ClusterConfig, xa: bool) -> Iterator[Fault]:
    subject = f"cluster {cluster.name!r}"
    for what, remedy in (*_brokers(cluster), *_policy(cluster, xa), *_figures(cluster)):
        yield Fault(subject, what, remedy)
    for each in cluster.inner:
        yield from _faults(each, xa or each.xa)


Complaint = tuple[str, str]


def _brokers(cluster: ClusterConfig) -> Iterator[Complaint]:
    if not cluster.brokers:
        yield "has no brokers", "list them in their order"
    if len({isinstance(each, ClusterConfig) for each in cluster.brokers}) > 1:
        yield "holds brokers as well as clusters", "put the brokers into a cluster of their own"
    for each in cluster.brokers:
        if not each.name:
            yield "holds something without a name", "name it"
    for name, weight in cluster.given.items():
        if type(weight) is not int or weight < 1:
            yield f"gives broker {name!r} the weight {weight!r}", WHOLE
    if cluster.given and cluster.policy in tuple(PolicyName) and cluster.policy != PolicyName.WEIGHTED:
        what = f"gives weights to {', '.join(cluster.given)}, which are for {PolicyName.WEIGHTED}"
        yield what, "leave them out, or choose that policy"


def _policy(cluster: ClusterConfig, xa: bool) -> Iterator[Complaint]:
    known = ", ".join(PolicyName)
    if not cluster.policy:
        yield "has no policy", f"choose one of {known}"
    elif cluster.policy not in tuple(PolicyName):
        yield f"has the unknown policy {cluster.policy!r}", f"choose one of {known}"
    elif cluster.policy == PolicyName.WEIGHTED and cluster.inner:
        yield "weighs clusters", f"give the policy {cluster.policy} to the clusters in it, and another to the composite"
    elif cluster.policy == PolicyName.BEST_EFFORT and xa:
        yield "sends by best effort under XA", f"choose {PolicyName.GUARANTEED}, or leave xa out"
    elif cluster.policy == PolicyName.GUARANTEED and not xa:
        yield "guarantees several copies without XA", "set xa, so that all of them are kept or none"


def _figures(cluster: ClusterConfig) -> Iterator[Complaint]:
    for figure, value, policy in (
        ("needed", cluster.needed, PolicyName.GUARANTEED),
        ("most", cluster.most, PolicyName.BEST_EFFORT),
    ):
        if value is None and figure == "needed" and cluster.policy == policy:
            yield "does not set how many brokers must accept", f"give needed, from 1 to {len(cluster.brokers)}"
        elif value is not None and cluster.policy != policy:
            yield f"has {figure}, which is for {policy}", "leave it out, or choose that policy"
        elif value is not None and (type(value) is not int or not 1 <= value <= len(cluster.brokers)):
            yield f"has {figure} = {value!r}", f"it must be between 1 and the {len(cluster.brokers)} that it holds"


def check_one(cluster: ClusterConfig, said: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless all brokers of a cluster that named theirs named the same; the others are away."""
    for each in cluster.inner:
        check_one(each, said)
    belongs = {name: said[name] for name in cluster.leaves() if name in said}
    if not cluster.inner and len(set(belongs.values())) > 1:
        told = ", ".join(f"{name} to {of}" for name, of in belongs.items())
        raise ConfigError(
            f"cluster {cluster.name!r} lists brokers of different clusters ({told}); "
            "make a cluster of each, and a composite of both"
        )


def check_stores(stores: Mapping[str, UUID]) -> None:
    """Raise `ConfigError` if two brokers are the same store: a message that both accept would be kept only once."""
    for (name, store), (other, same) in combinations(stores.items(), 2):
        if store == same:
            raise ConfigError(f"brokers {name!r} and {other!r} are the same store; list it once")
