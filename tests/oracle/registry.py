"""The registry of a store in memory: what is registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from tests.oracle.home import Home
from tests.oracle.names import Names
from txsaga.core.identity import StoreId
from txsaga.core.records import Group, RegisteredResource
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import ConfigError
from txsaga.messages.registry_store import Registry


class MemoryRegistry(Registry):
    """Topics, groups and resources by name and number."""

    def __init__(self, home: Home, names: Names) -> None:
        self._home = home
        self._names = names
        self._cluster: str | None = None

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to."""
        return self._cluster

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""
        return self._home.identity

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are refused now."""
        return self._home.rejecting

    def reject_transactions(self, rejecting: bool) -> None:
        """Switch halves off or on."""
        with self._home.lock:
            self._home.rejecting = rejecting

    def join_cluster(self, name: str | None) -> None:
        """Say which cluster the store belongs to."""
        self._cluster = name

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic, or find the same one."""
        if queues < 1:
            raise ConfigError(f"topic {name!r} can't have {queues} queues; it needs one at least")
        asked = Topic(
            id=0,
            name=name,
            type=type,
            qids=(),
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        return self._names.create_topic(asked, queues)

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Keep a topic's messages for another time or size."""
        return self._names.alter_topic(name, retention_seconds, retention_bytes)

    def topic(self, name: str) -> Topic:
        """Return a topic."""
        return self._names.topic(name)

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""
        return self._names.topics()

    def group(self, name: str, *, transactional: bool | None = None) -> Group:
        """Register a producer group, or find it."""
        return self._names.group(name, transactional=transactional)

    def find_group(self, name: str) -> Group | None:
        """Return a producer group by its name."""
        return self._names.find_group(name)

    def group_by_id(self, id: int) -> Group:
        """Return a producer group."""
        return self._names.group_by_id(id)

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""
        return self._names.groups()

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Let a producer group say something otherwise than the engine."""
        return self._names.alter_checks(name, changes)

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource, or find it."""
        return self._names.resource(name, database)

    def enlist(self, id: int) -> None:
        """Note that branches may be prepared in a resource."""
        self._names.enlist(id)

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""
        return self._names.enlisted()

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a resource."""
        return self._names.resource_by_id(id)
