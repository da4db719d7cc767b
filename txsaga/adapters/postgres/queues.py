"""
Cursors on PostgreSQL, fenced by owner and epoch; the database's clock decides leases.

A member that stalled past its lease finds its epoch raised and can't move the cursor: otherwise two members
would both acknowledge the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, Engine, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.connection import transaction
from txsaga.errors import LeaseLost
from txsaga.model.records import Claimed, Intent

cursor, lease, intent = schema.cursor, schema.lease, schema.intent


def _kind(group: str) -> str:
    return f"member:{group}"


def _cursor(group: str, qid: int) -> ColumnElement[bool]:
    return (cursor.c.grp == group) & (cursor.c.qid == qid)


def _undecided(group: str, qid: int) -> ColumnElement[bool]:
    return exists().where(intent.c.grp == group, intent.c.qid == qid)


def _lock(connection: Connection, group: str, qid: int) -> None:
    """Lock the cursor in a statement of its own, so that the next one sees an intent written meanwhile."""
    connection.execute(select(cursor.c.qid).where(_cursor(group, qid)).with_for_update())


class PostgresQueues:
    """Consumer groups of one namespace."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def renew(self, group: str, member: str, ttl: timedelta) -> Sequence[str]:
        """Take or renew a member's lease; return the live members."""
        until = func.clock_timestamp() + ttl
        statement = insert(lease).values(kind=_kind(group), name=member, holder=member, until=until)
        live = select(lease.c.holder).where(lease.c.kind == _kind(group), lease.c.until > func.clock_timestamp())
        with transaction(self._engine) as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["kind", "name"], set_={"until": until}))
            return connection.execute(live.order_by(lease.c.holder)).scalars().all()

    def leave(self, group: str, member: str) -> None:
        """Drop a member's lease and give back its queues."""
        with transaction(self._engine) as connection:
            connection.execute(delete(lease).where(lease.c.kind == _kind(group), lease.c.name == member))
            connection.execute(update(cursor).where(cursor.c.grp == group, cursor.c.owner == member).values(owner=None))

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet."""
        values = [{"grp": group, "qid": qid, "off": offset} for qid, offset in sorted(starts.items())]
        with transaction(self._engine) as connection:
            connection.execute(insert(cursor).on_conflict_do_nothing(), values)

    def positions(self, group: str, qids: Sequence[int]) -> Mapping[int, int]:
        """Return the offsets of cursors that exist."""
        query = select(cursor.c.qid, cursor.c.off).where(cursor.c.grp == group, cursor.c.qid.in_(qids))
        with transaction(self._engine) as connection:
            return {qid: offset for qid, offset in connection.execute(query)}

    def acquire(self, group: str, member: str, qid: int) -> Claimed | None:
        """Own a queue with a raised epoch."""
        live = exists().where(
            lease.c.kind == _kind(group), lease.c.name == member, lease.c.until > func.clock_timestamp()
        )
        holder = exists().where(
            lease.c.kind == _kind(group),
            lease.c.name == cursor.c.owner,
            lease.c.until > func.clock_timestamp(),
        )
        free = or_(cursor.c.owner.is_(None), cursor.c.owner == member, ~holder)
        statement = (
            update(cursor)
            .where(_cursor(group, qid), free, live, ~_undecided(group, qid))
            .values(owner=member, epoch=cursor.c.epoch + 1)
            .returning(cursor.c.off, cursor.c.epoch)
        )
        with transaction(self._engine) as connection:
            _lock(connection, group, qid)
            row = connection.execute(statement).one_or_none()
        return None if row is None else Claimed(group, qid, row.off, row.epoch)

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""
        with transaction(self._engine) as connection:
            connection.execute(update(cursor).where(_cursor(group, qid), cursor.c.owner == member).values(owner=None))

    def advance(self, claim: Claimed, member: str, offset: int) -> Claimed:
        """Move a cursor while owner and epoch are still the claim's."""
        statement = (
            update(cursor)
            .where(
                _cursor(claim.group, claim.qid),
                cursor.c.owner == member,
                cursor.c.epoch == claim.epoch,
                cursor.c.off == claim.offset,
                ~_undecided(claim.group, claim.qid),
            )
            .values(off=offset)
        )
        with transaction(self._engine) as connection:
            _lock(connection, claim.group, claim.qid)
            moved = connection.execute(statement).rowcount
        if moved != 1:
            raise LeaseLost(f"queue {claim.qid} of group {claim.group!r} is not {member}'s any more; drop the work")
        return claim._replace(offset=offset)

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the intent that is open on a queue."""
        query = select(intent).where(intent.c.grp == group, intent.c.qid == qid)
        with transaction(self._engine) as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        names = ("start", "end", "epoch", "txid", "member")
        return Intent(group=group, qid=qid, **{name: row[name] for name in names})

    def reset(self, group: str, offsets: Mapping[int, int]) -> None:
        """Put cursors elsewhere and fence their owners."""
        with transaction(self._engine) as connection:
            for qid, offset in sorted(offsets.items()):
                values = {"off": offset, "owner": None, "epoch": cursor.c.epoch + 1}
                connection.execute(update(cursor).where(_cursor(group, qid)).values(**values))
