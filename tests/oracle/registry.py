"""The registry of a store in memory: what is registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from tests.oracle.home import Home
from tests.oracle.log import MemoryLog
from tests.oracle.names import Names
from txsaga.core.identity import StoreId
from txsaga.core.records import Group, RegisteredResource
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import ConfigError, TopicInUse
from txsaga.messages.registry_store import Registry


class MemoryRegistry(Registry):
    """Topics, groups and resources by name and number."""

    def __init__(self, home: Home, names: Names, log: MemoryLog) -> None:
        self._home = home
        self._names = names
        self._log = log
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

    def alter_topic(self, name: str, seconds: int | None, size: int | None, type: TopicType | None = None) -> Topic:
        """Keep a topic's messages for another time or size; another type takes another topic."""
        with self._home.lock:
            known = self._names.topic(name)
            if type in (None, known.type):
                return self._names.alter_topic(name, seconds, size)
            self._require_unneeded(known)
            if self._stored(known):
                raise TopicInUse(f"topic {name!r} has messages")
            self._names.delete_topic(name)
            return self.create_topic(name, type, len(known.qids), seconds, size)

    def delete_topic(self, name: str) -> int:
        """Delete a topic that is not needed; return how many messages it had."""
        with self._home.lock:
            known = self._names.topic(name)
            self._require_unneeded(known)
            self._names.delete_topic(name)
            return self._stored(known)

    def _stored(self, known: Topic) -> int:
        return sum(bounds.head - bounds.tail for bounds in self._log.bounds(known.qids).values())

    def _require_unneeded(self, known: Topic) -> None:
        kept = self._home.kept
        if any(letter.row.qid in known.qids for letter in kept.letters.values()):
            raise TopicInUse(f"topic {known.name!r} has dead letters")
        if readers := sorted({group for group, qid in kept.cursors if qid in known.qids}):
            raise TopicInUse(f"topic {known.name!r} is read by {', '.join(readers)}")
        for txid, halves in kept.halves.items():
            if txid not in kept.ops and any(half.row.qid in known.qids for half in halves):
                raise TopicInUse(f"topic {known.name!r} has messages of transaction {txid}")

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

    def alter_kind(self, name: str, transactional: bool | None) -> Group:
        """Change which producers a group takes."""
        return self._names.alter_kind(name, transactional)

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
