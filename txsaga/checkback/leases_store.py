"""
Leases on PostgreSQL, by the clock of the database.

A holder that slept past its time finds its epoch raised, or the row gone: writes under its old lead are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Engine, case, delete, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from txsaga.checkback.questions import Lead
from txsaga.store import schema
from txsaga.store.connection import by_index, transaction

lease = schema.lease
NOW = func.clock_timestamp()


class Leases:
    """The leases of one namespace."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a free lease, or extend one's own; None while another holder has it."""
        fresh = insert(lease).values(kind=kind, name=name, holder=holder, until=NOW + ttl)
        mine = lease.c.holder == holder
        statement = fresh.on_conflict_do_update(
            index_elements=["kind", "name"],
            set_={
                "holder": holder,
                "until": fresh.excluded.until,
                "epoch": lease.c.epoch + case((mine & (lease.c.until > NOW), 0), else_=1),
            },
            where=or_(mine, lease.c.until <= NOW),
        ).returning(lease.c.epoch)
        with by_index(self._engine) as connection:
            epoch = connection.execute(statement).scalar()
        return None if epoch is None else Lead(kind, name, holder, epoch)

    def release(self, lead: Lead) -> None:
        """Give a lease back; one that was lost meanwhile stays with its new holder."""
        mine = tuple_(lease.c.kind, lease.c.name, lease.c.holder, lease.c.epoch) == tuple_(*lead)
        with transaction(self._engine) as connection:
            connection.execute(lease.update().where(mine).values(until=NOW))

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Mark a member of each of these kinds as alive, and delete those long gone."""
        values = [{"kind": kind, "name": name, "holder": name, "until": NOW + ttl} for kind in sorted(kinds)]
        fresh = insert(lease).values(values)
        known = select(lease.c.kind, lease.c.name).where(lease.c.kind.in_(kinds))
        over = known.where(lease.c.until <= NOW - ttl).with_for_update(skip_locked=True)
        with transaction(self._engine) as connection:
            connection.execute(
                fresh.on_conflict_do_update(index_elements=["kind", "name"], set_={"until": fresh.excluded.until})
            )
            connection.execute(delete(lease).where(tuple_(lease.c.kind, lease.c.name).in_(over)))

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Drop its leases: it has left."""
        with transaction(self._engine) as connection:
            connection.execute(delete(lease).where(lease.c.kind.in_(kinds), lease.c.name == name))

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the live names, by kind."""
        query = select(lease.c.kind, lease.c.name).where(lease.c.kind.in_(kinds), lease.c.until > NOW)
        found = defaultdict(list)
        with transaction(self._engine) as connection:
            for kind, name in connection.execute(query.order_by(lease.c.name)):
                found[kind].append(name)
        return found
