"""
Consumer groups on PostgreSQL, and their dead letters.

A group keeps its style for ever: if its cursors were moved in both styles, messages would be skipped silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, Row, TextClause, delete, select, text, update
from sqlalchemy.dialects.postgresql import insert

from txsaga.consume.claim import COPIED, ConsumerGroup, Policy, Style
from txsaga.consume.claim_end_statements import forget
from txsaga.consume.dead_letter import Copy, DeadLetter
from txsaga.errors import GroupKindMismatch, UnknownGroup
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

group, letter = schema.consumer_group, schema.dead_letter
NEWEST = select(letter, schema.queue.c.idx).join(schema.queue, schema.queue.c.qid == letter.c.qid)

SQL = sql_files.read("consume/sql/group.sql")


class ConsumerGroups:
    """The consumer groups of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'

    def open(self, name: str, style: Style, policy: Policy) -> ConsumerGroup:
        """Register a group, or find it; the policy applies only to a new one. The group is marked as seen.

        `GroupKindMismatch` for a group of the other style: a cursor can't be moved in both.
        """
        known = self._seen(name)
        if known is None:
            new = insert(group).values(name=name, style=style.value, **asdict(policy)).on_conflict_do_nothing()
            with transaction(self._engine) as connection:
                connection.execute(new)
            known = self._seen(name)
        if known is None:
            raise UnknownGroup(name)  # it expired at this moment
        if known.style is not style:
            raise GroupKindMismatch(name, stored=known.style.named, asked=style.named)
        return known

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a registered group."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(group).where(group.c.name == name)).one_or_none()
        return None if row is None else _group(row)

    def touch(self, name: str) -> ConsumerGroup:
        """Mark the group as seen, at most once a minute; `UnknownGroup` if it expired meanwhile."""
        known = self._seen(name)
        if known is None:
            raise UnknownGroup(name)
        return known

    def expire(self) -> Sequence[str]:
        """Delete groups in which no member was seen for their expiry time, with cursors and claims; return their names.

        A group with a live member, claimed messages or messages bound to a transaction counts as seen. All dead letters
        stay.
        """
        with transaction(self._engine) as connection:
            connection.execute(self._sql(SQL["seen_at_work"]))
        with transaction(self._engine) as connection:
            over = [name for (name,) in connection.execute(self._sql(SQL["over"]))]
            return [name for name in over if self._forgotten(connection, name)]

    def _forgotten(self, connection: Connection, name: str) -> bool:
        named = {"name": name}
        connection.execute(self._sql(SQL["still"]), named)
        if connection.execute(self._sql(SQL["in_use"]), named).scalar_one():
            return False
        forget(connection, self._schema, name, None, "the group expired")
        for statement in ("forget_cursors", "forget_leases", "forget_group"):
            connection.execute(self._sql(SQL[statement]), named)
        return True

    def _seen(self, name: str) -> ConsumerGroup | None:
        # Marked first: a group that expires at this moment is gone when it is read, a marked one stays.
        with transaction(self._engine) as connection:
            connection.execute(self._sql(SQL["seen"]), {"names": [name]})
            row = connection.execute(select(group).where(group.c.name == name)).one_or_none()
        return None if row is None else _group(row)

    def _sql(self, statement: str) -> TextClause:
        return text(statement.format(s=self._schema))

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""
        with transaction(self._engine) as connection:
            return [_group(row) for row in connection.execute(select(group).order_by(group.c.name))]

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change only the named parts of a group's policy; `UnknownGroup` for one that is not registered."""
        statement = update(group).where(group.c.name == name).values(**changes).returning(group)
        with transaction(self._engine) as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise UnknownGroup(name)
        return _group(row)


class DeadLetterStore:
    """The dead letters of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'

    def list(self, group: str | None, limit: int) -> Sequence[DeadLetter]:
        """Return dead letters, newest first; of all groups if none is named."""
        query = NEWEST if group is None else NEWEST.where(letter.c.grp == group)
        with transaction(self._engine) as connection:
            rows = connection.execute(query.order_by(letter.c.id.desc()).limit(limit)).all()
        return [_letter(row) for row in rows]

    def ids(self, group: str, after: int, limit: int) -> Sequence[int]:
        """Return numbers of a group's letters after a number, oldest first."""
        query = select(letter.c.id).where(letter.c.grp == group, letter.c.id > after)
        with transaction(self._engine) as connection:
            return connection.execute(query.order_by(letter.c.id).limit(limit)).scalars().all()

    def get(self, id: int) -> DeadLetter | None:
        """Return one letter."""
        with transaction(self._engine) as connection:
            row = connection.execute(NEWEST.where(letter.c.id == id)).one_or_none()
        return None if row is None else _letter(row)

    def replay(self, ids: Sequence[int]) -> int:
        """Redeliver letters to their groups, with their history and no attempts; return how many."""
        numbers = {"ids": [*ids]}
        with transaction(self._engine) as connection:
            wanted = {"names": list(connection.execute(self._sql(SQL["wanted"]), numbers).scalars())}
            connection.execute(self._sql(SQL["seen"]), wanted)
            return connection.execute(self._sql(SQL["replay"]), {**numbers, **wanted}).rowcount

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good; return how many there were."""
        with transaction(self._engine) as connection:
            return connection.execute(delete(letter).where(letter.c.id.in_(ids))).rowcount

    def _sql(self, statement: str) -> TextClause:
        return text(statement.format(s=self._schema, copied=COPIED))


def _group(row: Row[Any]) -> ConsumerGroup:
    values = dict(row._mapping)
    del values["seen"]
    name, style = values.pop("name"), Style(values.pop("style"))
    return ConsumerGroup(name=name, style=style, policy=Policy(**values))


def _letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        group=row.grp,
        topic=row.topic,
        queue=row.idx,
        offset=row.off,
        at=row.at,
        attempts=row.attempts,
        cause=row.cause,
        history=row.history,
        copy=Copy(row.message, row.born, row.body),
    )
