"""
Builds a cluster: a policy, its brokers by URL or already open, and the broker that coordinates their transactions.

An invalid combination is refused before a broker is opened. An unavailable broker is retried later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

from txsaga.broker import Broker
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.clusters.config import ClusterConfig, check, check_one, check_stores, read
from txsaga.clusters.members import RETRY, Members
from txsaga.core.arguments import check_kind, check_seconds
from txsaga.core.failure import on_failure
from txsaga.errors import ConfigError
from txsaga.resources.broker import StoreParticipant, TxLog
from txsaga.wiring.connecting import one_of_many


def cluster(
    definition: ClusterConfig | Mapping[str, object],
    brokers: Mapping[str, str | Broker],
    *,
    name: str = "cluster",
    coordinator: Broker | None = None,
    tx_log: Path | str | None = None,
    retry: float = RETRY,
    seed: int | None = None,
) -> BrokerCluster:
    """Combine a policy, its brokers (by URL or already open) and the broker that coordinates their transactions.

    An unavailable broker is retried after `retry` seconds. With `tx_log` each step of two-phase commit is written to
    a file per broker in that folder. `seed` makes the random policy repeatable.
    """
    found = definition if isinstance(definition, ClusterConfig) else read(name, definition)
    check(found)
    check_brokers(found, brokers, coordinator)
    check_seconds(retry, "retry")
    if tx_log is not None:
        check_kind(tx_log, (str, Path), "tx_log", "give a folder")
    if seed is not None:
        check_kind(seed, int, "seed", "give a whole number")
    said, stores = dict[str, str](), dict[str, UUID]()

    def opened(leaf: str, broker: Broker) -> None:
        if coordinator is not None and broker.identity.uuid == coordinator.identity.uuid:
            raise ConfigError(f"broker {leaf!r} is the coordinator itself, and brokers only vote; give another")
        if (belongs := broker.cluster) is not None:
            said[leaf] = belongs
        check_one(found, said)
        stores[leaf] = broker.identity.uuid
        check_stores(stores)
        if coordinator is not None:
            log = None if tx_log is None else TxLog(Path(tx_log) / f"{leaf}.log")
            coordinator.enlist(leaf, StoreParticipant(broker, name=leaf, log=log))

    ways = {leaf: _way_to(brokers[leaf]) for leaf in found.leaves()}
    ours = [leaf for leaf, broker in brokers.items() if isinstance(broker, str)]
    members = Members(ways, opened, ours=ours, retry=retry)
    with on_failure(members.close):
        members.available()
    return BrokerCluster(found, members, coordinator, generator=random.Random(seed))


def check_brokers(definition: ClusterConfig, brokers: Mapping[str, str | Broker], coordinator: object) -> None:
    """Raise `ConfigError` unless every broker has a URL or is open, and XA has a coordinator (and only XA does)."""
    check_kind(brokers, Mapping, "brokers", "give a URL or an open broker by each name")
    for broker in brokers.values():
        check_kind(broker, (str, Broker), "a broker", "give its URL, or open it with txsaga.connect()")
    leaves = set(definition.leaves())
    if missing := sorted(leaves ^ brokers.keys()):
        raise ConfigError(
            f"cluster {definition.name!r} lists {', '.join(sorted(leaves))}; {', '.join(missing)} is either listed or "
            "given, not both: give a URL or an open broker for each"
        )
    if coordinator is not None:
        check_kind(coordinator, Broker, "the coordinator", "give exactly one open broker that is none of the cluster's")
    if definition.xa and coordinator is None:
        raise ConfigError(
            f"cluster {definition.name!r} has xa but no coordinator, which must be another store; give "
            "coordinator=txsaga.connect(…)"
        )
    if coordinator is not None and not definition.xa:
        raise ConfigError(f"cluster {definition.name!r} has a coordinator but not xa; set xa, or leave it out")


def _way_to(broker: str | Broker) -> Callable[[], Broker]:
    if isinstance(broker, Broker):
        return lambda: broker
    return lambda: one_of_many(broker)
