"""
Topics, producer groups and resources of one namespace, by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from txsaga import errors
from txsaga.core.identity import StoreId
from txsaga.core.records import Group, RegisteredResource
from txsaga.core.topic import Topic, TopicChanges, TopicType
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore, Run

SQL = sql_files.read("messages/sql/registry.sql")
NEEDS = {
    "letters": "has dead letters ({0}); replay or purge them with `txsaga dlq` while their groups read it",
    "readers": "is read by {0}; remove each with `txsaga group leave GROUP --topic {1} --yes`",
    "backed_out_by": "is the backout topic of {0}; give each another with `txsaga group alter GROUP --backout TOPIC`",
    "undecided": "has messages of transaction {0}, which is undecided; wait, or settle it with `txsaga tx settle {0}`",
    "stored": "has messages ({0}); drop them with `txsaga topic purge {1} --yes`",
}
"""What needs a topic as it is, and what to do."""


class Registry(NamespaceStore):
    """The registrations of one namespace."""

    def __init__(self, engine: Engine, namespace: str, identity: StoreId, *, owner: bool = True) -> None:
        super().__init__(engine, namespace)
        self._identity, self._owner = identity, owner

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""
        return self._identity

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are currently refused."""
        return bool(self._row(SQL["store"]).rejecting)

    def reject_transactions(self, rejecting: bool) -> None:
        """Refuse or accept halves from now on."""
        self._changed(SQL["reject"], rejecting=rejecting)

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to, if one is set."""
        name: str | None = self._row(SQL["store"]).cluster
        return name

    def join_cluster(self, name: str | None) -> None:
        """Set the cluster that the store belongs to; None for none."""
        self._changed(SQL["join_cluster"], cluster=name)

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; repeating it is not an error, other settings raise `TopicExists`."""
        kept = {"retention_seconds": retention_seconds, "retention_bytes": retention_bytes}
        with self._changing() as run:
            if run(SQL["topic"], name=name).first() is None:
                run(SQL["create"], name=name, type=type.value, queues=queues, **kept)
            have = _topic(run, name)
        stored = (have.type, len(have.qids), have.retention_seconds, have.retention_bytes)
        if stored != (type, queues, retention_seconds, retention_bytes):
            raise errors.TopicExists(f"topic {name!r} exists as {have}; use, alter or delete it, or pick another name")
        return have

    def alter_topic(self, name: str, seconds: int | None, size: int | None, type: TopicType | None = None) -> Topic:
        """Change a topic's retention; with another type a new topic replaces it: `TopicInUse` unless it is empty."""
        kept = {"retention_seconds": seconds, "retention_bytes": size}
        with self._changing() as run:
            known = _topic(run, name)
            if type in (None, known.type):
                run(SQL["retain"], id=known.id, **kept)
            else:
                _delete(run, known, "stored")
                run(SQL["create"], name=name, type=type.value, queues=len(known.qids), **kept)
            altered = _topic(run, name)
        TopicChanges.count += 1
        return altered

    def delete_topic(self, name: str) -> int:
        """Delete a topic and free its name, or raise `TopicInUse`; return how many messages it had."""
        with self._changing() as run:
            messages = _delete(run, _topic(run, name))
        TopicChanges.count += 1
        return messages

    @contextmanager
    def _changing(self) -> Iterator[Run]:
        """Let no other process change topics: the queues of a topic have no gaps, and a name belongs to one."""
        with self._open() as run:
            run(SQL["one_by_one"])
            yield run

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise `UnknownTopic`."""
        with self._open() as run:
            return _topic(run, name)

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""
        return list(map(_topic_of, self._rows(SQL["topics"])))

    def group(self, name: str, *, transactional: bool | None = None) -> Group:
        """Register a producer group, of a kind or of any; `GroupKindMismatch` if it exists with the other kind."""
        with self._open() as run:
            run(SQL["register_group"], name=name, transactional=transactional, owner=self._owner)
            known = Group(**run(SQL["group"], name=name).one()._mapping)
        if None not in (transactional, known.transactional) and known.transactional != transactional:
            asked = "transactional" if transactional else "plain"
            change = f"change it with `txsaga producer alter {name} --kind {asked}`"
            raise errors.GroupKindMismatch(name, stored=known.kind, asked=asked, change=change)
        return known

    def find_group(self, name: str) -> Group | None:
        """Return a registered producer group by name."""
        return next((Group(**row._mapping) for row in self._rows(SQL["group"], name=name)), None)

    def group_by_id(self, id: int) -> Group:
        """Return a registered producer group."""
        return Group(**self._row(SQL["group_by_id"], id=id)._mapping)

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""
        return [Group(**row._mapping) for row in self._rows(SQL["groups"])]

    def alter_kind(self, name: str, transactional: bool | None) -> Group:
        """Change which producers a group takes; `GroupInUse` while it has undecided transactions or live members."""
        with self._open() as run:
            row = run(SQL["alter_kind"], name=name, transactional=transactional).one_or_none()
            if row is None:
                raise errors.UnknownProducerGroup(name)
            if needed := run(SQL["group_needed"], id=row.id).scalar():
                raise errors.GroupInUse(name, needed)
        return Group(**row._mapping)

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Override check-back settings for a producer group; None removes an override.

        `UnknownProducerGroup` if it is not registered.
        """
        row = self._row(SQL["alter_checks"], name=name, changes=json.dumps(dict(changes)))
        if row is None:
            raise errors.UnknownProducerGroup(name)
        return Group(**row._mapping)

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource under its database's uuid."""
        with self._open() as run:
            row = run(SQL["resource"], name=name, database=database).one_or_none()
            if row is None:
                run(SQL["register_resource"], name=name, database=database)
                row = run(SQL["resource"], name=name, database=database).one()
        return RegisteredResource(**row._mapping)

    def enlist(self, id: int) -> None:
        """Record that branches may be prepared in a resource: recovery scans it from now on."""
        self._changed(SQL["enlist"], id=id)

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""
        return [RegisteredResource(**row._mapping) for row in self._rows(SQL["enlisted"])]

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a registered resource."""
        row = self._row(SQL["resource_by_id"], id=id)
        if row is None:
            raise errors.UnknownTransaction(f"resource number {id} is not registered in this store")
        return RegisteredResource(**row._mapping)


def _topic(run: Run, name: str) -> Topic:
    row = run(SQL["topic"], name=name).one_or_none()
    if row is None:
        raise errors.UnknownTopic(name)
    return _topic_of(row)


def _topic_of(row: Any) -> Topic:
    return Topic(**{**row._mapping, "type": TopicType(row.type), "qids": tuple(row.qids)})


def _delete(run: Run, known: Topic, *needs: str) -> int:
    """Delete a topic that has none of these needs; return how many messages are stored."""
    needs = ("letters", "readers", "backed_out_by", "undecided", *needs)
    _refuse(run, known, needs)  # first without locks: a refusal delays no sender
    run(SQL["bounded"])
    run(SQL["delete"], id=known.id)
    return _refuse(run, known, needs)


def _refuse(run: Run, known: Topic, needs: Sequence[str]) -> int:
    found = run(SQL["needed"], id=known.id, name=known.name).one()._asdict()
    for need in needs:
        if found[need]:
            raise errors.TopicInUse(
                f"topic {known.name!r} {NEEDS[need].format(found[need], known.name)}, then try again"
            )
    return int(found["stored"])
