"""
Topics, producer groups and resources of one namespace, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, func, literal, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by, insert

from txsaga.core.identity import StoreId
from txsaga.core.records import Group, RegisteredResource
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import GroupKindMismatch, TopicExists, UnknownProducerGroup, UnknownTopic, UnknownTransaction
from txsaga.store import schema
from txsaga.store.connection import transaction

topic, queue, group = schema.topic, schema.queue, schema.producer_group
resource, store = schema.resource, schema.store


class Registry:
    """The registrations of one namespace."""

    def __init__(self, engine: Engine, identity: StoreId, *, owner: bool = True) -> None:
        self._engine, self._identity = engine, identity
        self._registered: dict[str, Any] = {} if owner else {"role": literal_column("session_user")}
        """A group belongs to its login, but the owner's groups are open to every producer."""

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""
        return self._identity

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are currently refused."""
        with transaction(self._engine) as connection:
            return bool(connection.execute(select(store.c.rejecting)).scalar())

    def reject_transactions(self, rejecting: bool) -> None:
        """Refuse or accept halves from now on."""
        with transaction(self._engine) as connection:
            connection.execute(update(store).values(rejecting=rejecting))

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to, if one is set."""
        with transaction(self._engine) as connection:
            name: str | None = connection.execute(select(store.c.cluster)).scalar()
        return name

    def join_cluster(self, name: str | None) -> None:
        """Set the cluster that the store belongs to; None for none."""
        with transaction(self._engine) as connection:
            connection.execute(update(store).values(cluster=name))

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; repeating it is not an error, other settings raise `TopicExists`."""
        values = {"retention_seconds": retention_seconds, "retention_bytes": retention_bytes}
        with transaction(self._engine) as connection:
            # One creator at a time, so that the queues of a topic have no gaps.
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('txsaga topic'))"))
            found = _topics(connection, name)
            if not found:
                statement = insert(topic).values(name=name, type=type.value, **values).returning(topic.c.id)
                id = connection.execute(statement).scalar_one()
                connection.execute(insert(queue), [{"topic": id, "idx": n} for n in range(queues)])
                found = _topics(connection, name)
        wanted = (type, queues, retention_seconds, retention_bytes)
        have = found[0]
        if (have.type, len(have.qids), have.retention_seconds, have.retention_bytes) != wanted:
            raise TopicExists(f"topic {name!r} exists as {have}; use it or choose another name")
        return have

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Change a topic's retention time or size; `UnknownTopic` if it does not exist."""
        values = {"retention_seconds": retention_seconds, "retention_bytes": retention_bytes}
        with transaction(self._engine) as connection:
            connection.execute(update(topic).where(topic.c.name == name).values(**values))
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise `UnknownTopic`."""
        with transaction(self._engine) as connection:
            found = _topics(connection, name)
        if not found:
            raise UnknownTopic(name)
        return found[0]

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""
        with transaction(self._engine) as connection:
            return _topics(connection, None)

    def group(self, name: str, *, transactional: bool | None = None) -> Group:
        """Register a producer group, of a kind or of any; `GroupKindMismatch` if it exists with the other kind."""
        with transaction(self._engine) as connection:
            statement = insert(group).values(name=name, transactional=transactional, **self._registered)
            connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
            row = connection.execute(select(group).where(group.c.name == name)).one()
        if None not in (transactional, row.transactional) and row.transactional != transactional:
            kinds = {True: "transactional", False: "plain"}
            raise GroupKindMismatch(name, stored=kinds[row.transactional], asked=kinds[bool(transactional)])
        return _group(row)

    def find_group(self, name: str) -> Group | None:
        """Return a registered producer group by name."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(group).where(group.c.name == name)).one_or_none()
        return None if row is None else _group(row)

    def group_by_id(self, id: int) -> Group:
        """Return a registered producer group."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(group).where(group.c.id == id)).one()
        return _group(row)

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""
        with transaction(self._engine) as connection:
            return [_group(row) for row in connection.execute(select(group).order_by(group.c.name))]

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Override check-back settings for a producer group; None removes an override.

        `UnknownProducerGroup` if it is not registered.
        """
        said = func.jsonb_strip_nulls(group.c.checks.op("||")(literal(dict(changes), JSONB)))
        with transaction(self._engine) as connection:
            statement = update(group).where(group.c.name == name).values(checks=said).returning(group)
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise UnknownProducerGroup(name)
        return _group(row)

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource under its database's uuid."""
        statement = insert(resource).values(name=name, database=database).on_conflict_do_nothing()
        query = select(resource).where(resource.c.name == name, resource.c.database == database)
        with transaction(self._engine) as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                connection.execute(statement)
                row = connection.execute(query).one()
        return _resource(row)

    def enlist(self, id: int) -> None:
        """Record that branches may be prepared in a resource: recovery scans it from now on."""
        with transaction(self._engine) as connection:
            connection.execute(update(resource).where(resource.c.id == id, ~resource.c.enlisted).values(enlisted=True))

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""
        with transaction(self._engine) as connection:
            rows = connection.execute(select(resource).where(resource.c.enlisted).order_by(resource.c.id)).all()
        return list(map(_resource, rows))

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a registered resource."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(resource).where(resource.c.id == id)).one_or_none()
        if row is None:
            raise UnknownTransaction(f"resource number {id} is not registered in this store")
        return _resource(row)


def _group(row: Any) -> Group:
    return Group(id=row.id, name=row.name, transactional=row.transactional, checks=row.checks)


def _resource(row: Any) -> RegisteredResource:
    return RegisteredResource(id=row.id, name=row.name, database=row.database, enlisted=row.enlisted)


def _topics(connection: Connection, name: str | None) -> list[Topic]:
    qids = func.array_agg(aggregate_order_by(queue.c.qid, queue.c.idx))
    query: Any = select(topic, qids).join_from(topic, queue, queue.c.topic == topic.c.id).group_by(topic.c.id)
    if name is not None:
        query = query.where(topic.c.name == name)
    return [
        Topic(
            id=row[0],
            name=row[1],
            type=TopicType(row[2]),
            retention_seconds=row[3],
            retention_bytes=row[4],
            qids=tuple(row[5]),
        )
        for row in connection.execute(query.order_by(topic.c.name))
    ]
