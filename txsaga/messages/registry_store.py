"""
Topics, producer groups and resources of one namespace, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, CursorResult, Engine, func, literal, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by, insert

from txsaga import errors
from txsaga.core.identity import StoreId
from txsaga.core.records import Group, RegisteredResource
from txsaga.core.topic import DELETED, Topic, TopicChanges, TopicType
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

topic, queue, group = schema.topic, schema.queue, schema.producer_group
resource, store = schema.resource, schema.store

SQL = sql_files.read("messages/sql/topic.sql")
NEEDS = {
    "readers": "is read by {0}; remove each with `txsaga group leave GROUP --topic {1} --yes`",
    "backed_out_by": "is the backout topic of {0}; give each another with `txsaga group alter GROUP --backout TOPIC`",
    "undecided": "has messages of transaction {0}, which is undecided; wait, or settle it with `txsaga tx settle {0}`",
    "stored": "has messages ({0}); drop them with `txsaga topic purge {1} --yes`",
}
"""What needs a topic as it is, and what to do."""


class Registry:
    """The registrations of one namespace."""

    def __init__(self, engine: Engine, namespace: str, identity: StoreId, *, owner: bool = True) -> None:
        self._engine, self._schema, self._identity = engine, f'"{namespace}"', identity
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
        wanted = (type, queues, retention_seconds, retention_bytes)
        with self._changing() as connection:
            have = next(iter(_topics(connection, name)), None) or _created(connection, name, *wanted)
        if (have.type, len(have.qids), have.retention_seconds, have.retention_bytes) != wanted:
            raise errors.TopicExists(f"topic {name!r} exists as {have}; use it or choose another name")
        return have

    def alter_topic(self, name: str, seconds: int | None, size: int | None, type: TopicType | None = None) -> Topic:
        """Change a topic's retention; with another type a new topic replaces it: `TopicInUse` unless it is empty."""
        values = {"retention_seconds": seconds, "retention_bytes": size}
        with self._changing() as connection:
            known = _topic(connection, name)
            if type not in (None, known.type):
                self._close(connection, known, "readers", "undecided", "stored")
                return _created(connection, name, type, len(known.qids), seconds, size)
            connection.execute(update(topic).where(topic.c.id == known.id).values(**values))
            return _topic(connection, name)

    def delete_topic(self, name: str) -> int:
        """Delete a topic and free its name, or raise `TopicInUse`; return how many messages it had."""
        with self._changing() as connection:
            return self._close(connection, _topic(connection, name), "readers", "backed_out_by", "undecided")

    def _close(self, connection: Connection, known: Topic, *needs: str) -> int:
        """Delete a topic that has none of these needs; return how many messages are stored."""
        self._refuse(connection, known, needs)  # first without locks: a refusal delays no sender
        self._run(connection, "delete", id=known.id)
        return self._refuse(connection, known, needs)

    def _refuse(self, connection: Connection, known: Topic, needs: Sequence[str]) -> int:
        found = self._run(connection, "needed", id=known.id, name=known.name).one()._asdict()
        for need in needs:
            if found[need]:
                raise errors.TopicInUse(
                    f"topic {known.name!r} {NEEDS[need].format(found[need], known.name)}, then try again"
                )
        return int(found["stored"])

    def _run(self, connection: Connection, statement: str, **values: object) -> CursorResult[Any]:
        return connection.execute(text(SQL[statement].format(s=self._schema)), values)

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Let no other process change topics: the queues of a topic have no gaps, and a name belongs to one."""
        with transaction(self._engine) as connection:
            self._run(connection, "one_by_one")
            yield connection
        TopicChanges.count += 1

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise `UnknownTopic`."""
        with transaction(self._engine) as connection:
            return _topic(connection, name)

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
            raise errors.GroupKindMismatch(name, stored=kinds[row.transactional], asked=kinds[bool(transactional)])
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
            raise errors.UnknownProducerGroup(name)
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
            raise errors.UnknownTransaction(f"resource number {id} is not registered in this store")
        return _resource(row)


def _group(row: Any) -> Group:
    return Group(id=row.id, name=row.name, transactional=row.transactional, checks=row.checks)


def _resource(row: Any) -> RegisteredResource:
    return RegisteredResource(**row._mapping)


def _created(
    connection: Connection, name: str, type: TopicType, queues: int, seconds: int | None, size: int | None
) -> Topic:
    values = {"name": name, "type": type.value, "retention_seconds": seconds, "retention_bytes": size}
    id = connection.execute(insert(topic).values(values).returning(topic.c.id)).scalar_one()
    connection.execute(insert(queue), [{"topic": id, "idx": n} for n in range(queues)])
    return _topic(connection, name)


def _topic(connection: Connection, name: str) -> Topic:
    found = _topics(connection, name)
    if not found:
        raise errors.UnknownTopic(name)
    return found[0]


def _topics(connection: Connection, name: str | None) -> list[Topic]:
    qids = func.array_agg(aggregate_order_by(queue.c.qid, queue.c.idx)).label("qids")
    query: Any = select(topic, qids).join_from(topic, queue, queue.c.topic == topic.c.id).group_by(topic.c.id)
    query = query.where(~topic.c.name.contains(DELETED) if name is None else topic.c.name == name)
    rows = connection.execute(query.order_by(topic.c.name)).mappings()
    return [Topic(**{**row, "type": TopicType(row["type"]), "qids": tuple(row["qids"])}) for row in rows]
