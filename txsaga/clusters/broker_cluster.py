"""
The API of a cluster: producers, consumers, recover and forget, over the brokers of one definition.

It contains no rules: the policy chooses brokers, and the coordinator settles transactions. If it is closed, what its
brokers hold prepared waits for recovery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from random import Random
from typing import Self

from txsaga.broker import Broker
from txsaga.clusters.config import ClusterConfig
from txsaga.clusters.copies import Copies, Timers
from txsaga.clusters.members import Members
from txsaga.clusters.producer import ClusterProducer
from txsaga.clusters.reader import ClusterConsumer, ClusterStream
from txsaga.clusters.recovery import PAGE, FoundBranch, Recovering, Scan
from txsaga.clusters.selection import Chooser
from txsaga.consume.consumer import Consumer
from txsaga.consume.queue_reader import Start
from txsaga.consume.stream import Stream
from txsaga.core.decision import LocalState
from txsaga.errors import ConfigError
from txsaga.flows.search import Scope


class BrokerCluster:
    """Several brokers and a policy."""

    def __init__(
        self, definition: ClusterConfig, members: Members, coordinator: Broker | None, *, generator: Random
    ) -> None:
        self.definition, self._all, self._coordinator = definition, members, coordinator
        self._chooser = Chooser(definition, generator)
        self._failures: Counter[str] = Counter()
        self._groups: set[str] = set()
        self._readers: list[ClusterConsumer | ClusterStream] = []

    @property
    def _members(self) -> Members:
        self._all.require_open()
        return self._all

    def __repr__(self) -> str:
        return f"<BrokerCluster of {', '.join(self._all.names)}>"

    @property
    def available(self) -> tuple[str, ...]:
        """The brokers that are reachable, as far as this client knows."""
        return self._members.available()

    @property
    def failures(self) -> Mapping[str, int]:
        """How often cleaning up a broker that took no part failed; such a broker cleans up by itself."""
        return dict(self._failures)

    def broker(self, name: str) -> Broker:
        """Return one broker."""
        if name not in self._members.names:
            raise ConfigError(
                f"cluster {self.definition.name!r} has no {name!r}, only {', '.join(self._members.names)}"
            )
        return self._members.broker(name)

    def producer(self, group: str) -> ClusterProducer:
        """Return the producer of a group; transactions need a coordinator."""
        coordinator, members = None, self._members
        if self._coordinator is not None:
            # Only the coordinator itself knows what became of the group's work.
            coordinator = (
                self._coordinator.kernel,
                self._coordinator.producer(group, checker=lambda _: LocalState.UNKNOWN),
            )
            self._groups.add(group)
        return ClusterProducer(group, self._chooser, members, coordinator, self._failures)

    def consumer(
        self,
        group: str,
        topics: Iterable[str],
        *,
        invisible: timedelta = timedelta(seconds=30),
        start: Start = "earliest",
        timers: Timers | None = None,
    ) -> ClusterConsumer:
        """Read topics from every broker as a member of a group, in the caller's thread."""
        named = list(topics)

        def open(broker: Broker) -> Consumer:
            return broker.consumer(group, named, invisible=invisible, start=start)

        consumer = ClusterConsumer(self._members, open, Copies(timers or Timers()))
        self._readers.append(consumer)
        return consumer

    def stream(
        self,
        group: str,
        topics: Iterable[str],
        *,
        start: Start = "earliest",
        member: str | None = None,
        ttl: timedelta = timedelta(seconds=15),
        timers: Timers | None = None,
    ) -> ClusterStream:
        """Read topics from every broker with a cursor on each, as a member of a group, in the caller's thread."""
        named = list(topics)

        def open(broker: Broker) -> Stream:
            return broker.stream(group, named, start=start, member=member, ttl=ttl)

        stream = ClusterStream(self._members, open, Copies(timers or Timers()))
        self._readers.append(stream)
        return stream

    def recover(self, mode: Scope | str = Scope.RESTRICTED) -> list[FoundBranch]:
        """Return every branch that a broker holds prepared, or that was decided there outside its coordinator."""
        return [found for page in self.scan(mode) for found in page]

    def scan(self, mode: Scope | str = Scope.RESTRICTED, *, page: int = PAGE) -> Scan:
        """Scan for the same branches page by page."""
        return self._recovering().scan(mode, page)

    def forget(self, found: FoundBranch | None = None) -> list[FoundBranch]:
        """Forget branches that were decided outside their coordinator: one, or all of them on each broker."""
        return self._recovering().forget(found)

    def reconnect(self) -> None:
        """Probe unavailable brokers again, and reset policies that stick to one."""
        self._members.look_again()
        self._chooser.reconnect()

    def close(self) -> None:
        """Close the readers and the brokers that this cluster opened; the coordinator stays open."""
        for reader in self._readers:
            reader.close()
        self._all.close()

    def __enter__(self) -> Self:
        self._members.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recovering(self) -> Recovering:
        members = self._members
        if self._coordinator is None:
            raise ConfigError(f"cluster {self.definition.name!r} has no coordinator, so it never prepares branches")
        return Recovering(self._coordinator.kernel, members, lambda: self._groups)
