"""What is registered in a store in memory: topics with their queues, producer groups, resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from uuid import UUID

from tests.oracle.home import Home
from txsaga.core.records import NOBODY, Group, RegisteredResource, Row
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import ConfigError, GroupKindMismatch, StoreError, TopicExists, UnknownProducerGroup, UnknownTopic


class Names:
    """Names and the numbers behind them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ids, self._qids = count(1), count(1)
        self._gone: set[int] = set()
        self._topics: dict[str, Topic] = {}
        self._places: dict[int, tuple[str, int]] = {}
        self._groups: dict[str, Group] = {}
        self._resources: dict[tuple[str, UUID], RegisteredResource] = {}
        self._enlisted: set[int] = set()

    def create_topic(self, asked: Topic, queues: int) -> Topic:
        """Create a topic with so many new queues, or find the same one."""
        with self._home.lock:
            known = self._topics.get(asked.name)
            if known is None:
                qids = tuple(next(self._qids) for _ in range(queues))
                known = self._topics[asked.name] = Topic(
                    id=next(self._ids),
                    name=asked.name,
                    type=asked.type,
                    qids=qids,
                    retention_seconds=asked.retention_seconds,
                    retention_bytes=asked.retention_bytes,
                )
                self._places |= {qid: (asked.name, index) for index, qid in enumerate(qids)}
            elif _settings(known, len(known.qids)) != _settings(asked, queues):
                raise TopicExists(
                    f"topic {asked.name!r} exists as {known}; use, alter or delete it, or pick another name"
                )
            return known

    def alter_topic(self, name: str, seconds: int | None, size: int | None) -> Topic:
        """Keep a topic's messages for another time or size."""
        with self._home.lock:
            known = replace(self.topic(name), retention_seconds=seconds, retention_bytes=size)
            self._topics[name] = known
            return known

    def delete_topic(self, name: str) -> None:
        """Let nothing into a topic's queues any more, and free its name."""
        with self._home.lock:
            self._gone.update(self._topics.pop(name).qids)

    def require_topics(self, qids: Iterable[int]) -> None:
        """Raise if the topic of one of these queues is deleted."""
        for qid in self._gone.intersection(qids):
            raise UnknownTopic(self.place(qid)[0])

    def topic(self, name: str) -> Topic:
        """Return a topic."""
        with self._home.lock:
            if name not in self._topics:
                raise UnknownTopic(name)
            return self._topics[name]

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""
        with self._home.lock:
            return [self._topics[name] for name in sorted(self._topics)]

    def known(self, qids: Sequence[int]) -> Sequence[int]:
        """Return those queues that exist."""
        return [qid for qid in qids if qid in self._places]

    def place(self, qid: int) -> tuple[str, int]:
        """Return the topic of a queue and its index there."""
        return self._places[qid]

    def wrong_rows(self, rows: Sequence[Row]) -> StoreError | None:
        """Tell why these rows can't lie in one half, if they can't."""
        unknown = [row.qid for row in rows if row.qid not in self._places]
        if unknown:
            return StoreError(f"queue {unknown[0]} does not exist")
        if len({(row.qid, row.chunk) for row in rows}) < len(rows):
            return StoreError("two chunks of one half have the same number")
        return None

    def group(self, name: str, *, transactional: bool | None = None) -> Group:
        """Register a producer group, or find it."""
        with self._home.lock:
            known = self._groups.get(name)
            if known is None:
                known = Group(id=len(self._groups) + 1, name=name, transactional=transactional)
                self._groups[name] = known
            if None not in (transactional, known.transactional) and known.transactional is not transactional:
                asked = _kind(transactional)
                raise GroupKindMismatch(name, stored=known.kind, asked=asked, change="alter it")
            return known

    def find_group(self, name: str) -> Group | None:
        """Return a producer group that is registered."""
        with self._home.lock:
            return self._groups.get(name)

    def groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""
        with self._home.lock:
            return [self._groups[name] for name in sorted(self._groups)]

    def alter_kind(self, name: str, transactional: bool | None) -> Group:
        """Change which producers a group takes, whatever needs it as it is."""
        with self._home.lock:
            self._groups[name] = replace(self._groups[name], transactional=transactional)
            return self._groups[name]

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Let a producer group say something otherwise than the engine."""
        with self._home.lock:
            known = self._groups.get(name)
            if known is None:
                raise UnknownProducerGroup(name)
            said = {key: value for key, value in {**known.checks, **changes}.items() if value is not None}
            self._groups[name] = replace(known, checks=said)
            return self._groups[name]

    def group_name(self, id: int) -> str:
        """Return the name of a producer group; what the store itself moved has none."""
        return "" if id == NOBODY else self.group_by_id(id).name

    def group_by_id(self, id: int) -> Group:
        """Return a producer group."""
        with self._home.lock:
            for group in self._groups.values():
                if group.id == id:
                    return group
        raise ConfigError(f"producer group {id} is not registered in this store")

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource, or find it; under another uuid it is another resource."""
        with self._home.lock:
            fresh = RegisteredResource(id=len(self._resources) + 1, name=name, database=database)
            return self._resources.setdefault((name, database), fresh)

    def enlist(self, id: int) -> None:
        """Note that branches may be prepared in a resource."""
        self._enlisted.add(id)

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""
        return [self.resource_by_id(id) for id in sorted(self._enlisted)]

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a resource."""
        with self._home.lock:
            for resource in self._resources.values():
                if resource.id == id:
                    return resource
        raise ConfigError(f"resource {id} is not registered in this store")


def _settings(topic: Topic, queues: int) -> tuple[TopicType, int, int | None, int | None]:
    return topic.type, queues, topic.retention_seconds, topic.retention_bytes


def _kind(transactional: bool | None) -> str:
    return "a group with a checker" if transactional else "a group without a checker"
