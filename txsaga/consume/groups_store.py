"""
Consumer groups on PostgreSQL: their policies, their dead letters, and their cursors, fenced by owner and epoch.

A group changes its style only without members: if both styles moved its cursors, messages would be skipped silently. A
member that stalled past its lease finds its epoch raised and can't move the cursor: otherwise two members would both
acknowledge the same messages. The database's clock decides leases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    TextClause,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from txsaga.consume.claim import COPIED, ConsumerGroup, Policy, Style
from txsaga.consume.claim_end_statements import forget
from txsaga.consume.dead_letter import Copy, DeadLetter
from txsaga.core.decision import Decision
from txsaga.core.records import ClaimedQueue, Intent
from txsaga.errors import ConfigError, EffectConflict, GroupInUse, GroupKindMismatch, LeaseLost, UnknownGroup
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

group, letter = schema.consumer_group, schema.dead_letter
cursor, lease, intent, claim = schema.cursor, schema.lease, schema.intent, schema.claim
queue, topic = schema.queue, schema.topic
OF_INTENT = ("qid", "start", "end", "epoch", "txid", "member")
NOW = func.clock_timestamp()
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
        try:
            return self.touch(name, style)
        except UnknownGroup:
            new = insert(group).values(name=name, style=style.value, **asdict(policy)).on_conflict_do_nothing()
            with transaction(self._engine) as connection:
                connection.execute(new)
        return self.touch(name, style)  # `UnknownGroup` if it expired at this moment

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a registered group."""
        with transaction(self._engine) as connection:
            row = connection.execute(select(group).where(group.c.name == name)).one_or_none()
        return None if row is None else _group(row)

    def touch(self, name: str, style: Style) -> ConsumerGroup:
        """Mark the group as seen, at most once a minute; raise if it is gone, or of the other style now."""
        # Marked first: a group that expires at this moment is gone when it is read, a marked one stays.
        with transaction(self._engine) as connection:
            connection.execute(self._sql(SQL["seen"]), {"names": [name]})
            row = connection.execute(select(group).where(group.c.name == name)).one_or_none()
        if row is None:
            raise UnknownGroup(name)
        known = _group(row)
        if known.style is not style:
            raise GroupKindMismatch(name, stored=known.style.named, asked=style.named)
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
            return [name for name in over if self._forgotten(connection, name, "the group expired")]

    def delete(self, name: str) -> None:
        """Delete a group with its cursors and claims; its dead letters stay. `GroupInUse` while a member works."""
        with transaction(self._engine) as connection:
            if connection.execute(self._sql(SQL["lock"]), {"name": name}).first() is None:
                raise UnknownGroup(name)
            if not self._forgotten(connection, name, "the group was deleted"):
                raise GroupInUse(name)

    def _is_used(self, connection: Connection, name: str) -> bool:
        connection.execute(self._sql(SQL["still"]), {"name": name})
        return bool(connection.execute(self._sql(SQL["in_use"]), {"name": name}).scalar_one())

    def _forgotten(self, connection: Connection, name: str, why: str) -> bool:
        if self._is_used(connection, name):
            return False
        forget(connection, self._schema, name, None, why)
        connection.execute(self._sql(SQL["forget"]), {"name": name})
        return True

    def _sql(self, statement: str) -> TextClause:
        return text(statement.format(s=self._schema))

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""
        with transaction(self._engine) as connection:
            return [_group(row) for row in connection.execute(select(group).order_by(group.c.name))]

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change only the named parts of a group; `style` and `ordered` only while it has no members and claims."""
        statement = update(group).where(group.c.name == name).values(**changes).returning(group)
        with transaction(self._engine) as connection:
            row = connection.execute(statement).one_or_none()
            if row is None:
                raise UnknownGroup(name)
            if {"style", "ordered"} & changes.keys():
                if self._is_used(connection, name):
                    raise GroupInUse(name)
                if connection.execute(self._sql(SQL["fence"]), {"name": name}).scalar_one():
                    raise ConfigError(
                        f"messages of group {name!r} wait for a retry; finish them, or drop them (`txsaga group reset`)"
                    )
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


def _kind(group: str, topic: str) -> str:
    return f"member:{group}/{topic}"


def _lives(group: str, qid: int, member: ColumnElement[str]) -> ColumnElement[bool]:
    of_topic = select(literal(_kind(group, "")) + topic.c.name).join_from(queue, topic, queue.c.topic == topic.c.id)
    kind = of_topic.where(queue.c.qid == qid).scalar_subquery()
    return exists().where(lease.c.kind == kind, lease.c.name == member, lease.c.until > NOW)


def _cursor(group: str, qid: int) -> ColumnElement[bool]:
    return (cursor.c.grp == group) & (cursor.c.qid == qid)


def _undecided(group: str, qid: int) -> ColumnElement[bool]:
    return exists().where(intent.c.grp == group, intent.c.qid == qid)


def _lock(connection: Connection, group: str, qid: int) -> None:
    """Lock the cursor in its own statement, so that the next one sees an intent written meanwhile."""
    connection.execute(select(cursor.c.qid).where(_cursor(group, qid)).with_for_update())


class Queues:
    """Cursors per group and queue."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'

    def renew(self, group: str, member: str, topics: Sequence[str], ttl: timedelta) -> Mapping[str, Sequence[str]]:
        """Take or renew a member's lease on each topic; return the live members of each, sorted."""
        kinds = {_kind(group, name): name for name in sorted(topics)}
        values = [{"kind": kind, "name": member, "holder": member, "until": NOW + ttl} for kind in kinds]
        mine = insert(lease).values(values)
        renewed = mine.on_conflict_do_update(index_elements=["kind", "name"], set_={"until": mine.excluded.until})
        known = select(lease.c.kind, lease.c.name).where(lease.c.kind.in_(kinds))
        # A locked lease is being renewed: waiting for it, two late members would deadlock.
        over = known.where(lease.c.until <= NOW).with_for_update(skip_locked=True)
        live: dict[str, list[str]] = {name: [] for name in kinds.values()}
        with transaction(self._engine) as connection:
            connection.execute(renewed)
            connection.execute(delete(lease).where(tuple_(lease.c.kind, lease.c.name).in_(over)))
            for kind, name in connection.execute(known.where(lease.c.until > NOW).order_by(lease.c.name)):
                live[kinds[kind]].append(name)
        return live

    def leave(self, group: str, member: str, topics: Sequence[str]) -> None:
        """Drop a member's leases and give back its queues of these topics."""
        of_topics = select(queue.c.qid).join(topic, queue.c.topic == topic.c.id).where(topic.c.name.in_(topics))
        mine = (cursor.c.grp == group) & (cursor.c.owner == member) & cursor.c.qid.in_(of_topics)
        kinds = [_kind(group, name) for name in topics]
        with transaction(self._engine) as connection:
            connection.execute(delete(lease).where(lease.c.kind.in_(kinds), lease.c.name == member))
            # In the order in which decisions lock cursors: otherwise the two could deadlock.
            connection.execute(select(cursor.c.qid).where(mine).order_by(cursor.c.qid).with_for_update())
            connection.execute(update(cursor).where(mine).values(owner=None))

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet, at these offsets."""
        values = [{"grp": group, "qid": qid, "off": offset} for qid, offset in sorted(starts.items())]
        with transaction(self._engine) as connection:
            connection.execute(insert(cursor).on_conflict_do_nothing(), values)

    def acquire(self, group: str, member: str, qid: int) -> ClaimedQueue | None:
        """Own a queue, with a raised epoch.

        None while a live member owns it or an intent is open on it, and without a lease on its topic.
        """
        free = or_(cursor.c.owner.is_(None), cursor.c.owner == member, ~_lives(group, qid, cursor.c.owner))
        statement = (
            update(cursor)
            .where(_cursor(group, qid), free, _lives(group, qid, literal(member)), ~_undecided(group, qid))
            .values(owner=member, epoch=cursor.c.epoch + 1)
            .returning(cursor.c.off, cursor.c.epoch)
        )
        with transaction(self._engine) as connection:
            _lock(connection, group, qid)
            row = connection.execute(statement).one_or_none()
        return None if row is None else ClaimedQueue(group, qid, row.off, row.epoch)

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""
        with transaction(self._engine) as connection:
            connection.execute(update(cursor).where(_cursor(group, qid), cursor.c.owner == member).values(owner=None))

    def advance(self, claim: ClaimedQueue, member: str, offset: int) -> ClaimedQueue:
        """Move a cursor; the same move again is no error.

        `LeaseLost` unless owner, epoch and offset are still the claim's, and while an intent is open: a member that
        does not know the cursor's position would skip unread messages.
        """
        statement = (
            update(cursor)
            .where(
                _cursor(claim.group, claim.qid),
                cursor.c.owner == member,
                cursor.c.epoch == claim.epoch,
                cursor.c.off.in_((claim.offset, offset)),
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

    def reset(self, group: str, positions: Mapping[int, int]) -> None:
        """Move cursors, by queue, and drop the claims there; all of them or none.

        `GroupInUse` while a live member owns one of the queues or holds messages of one, and while a transaction is
        bound to one.
        """
        with transaction(self._engine) as connection:
            self._empty(connection, group, sorted(positions), "the group was reset")
            for qid, offset in sorted(positions.items()):
                moved = update(cursor).where(_cursor(group, qid))
                connection.execute(moved.values(off=offset, owner=None, epoch=cursor.c.epoch + 1))

    def forget(self, group: str, qids: Collection[int]) -> None:
        """Drop a group's cursors and claims on these queues, all or none; `GroupInUse` as for `reset`."""
        with transaction(self._engine) as connection:
            self._empty(connection, group, sorted(qids), "the group left its topic")
            connection.execute(delete(cursor).where(cursor.c.grp == group, cursor.c.qid.in_(qids)))

    def purge(self, qids: Sequence[int]) -> int:
        """Drop the messages of queues, for every group; return how many. `GroupInUse` as for `reset`."""
        with transaction(self._engine) as connection:
            groups = select(cursor.c.grp).where(cursor.c.qid.in_(qids)).distinct().order_by(cursor.c.grp)
            for group in connection.execute(groups).scalars().all():
                self._empty(connection, group, sorted(qids), "the topic was purged")
            return int(connection.execute(text(SQL["purge"].format(s=self._schema)), {"qids": [*qids]}).scalar_one())

    def _empty(self, connection: Connection, group: str, qids: Sequence[int], why: str) -> None:
        """Drop the claims on queues that no member is working on; their cursors stay locked."""
        ours = (cursor.c.grp == group) & cursor.c.qid.in_(qids)
        connection.execute(select(cursor.c.qid).where(ours).order_by(cursor.c.qid).with_for_update())
        self._require_unused(connection, group, qids)
        forget(connection, self._schema, group, qids, why)

    def _require_unused(self, connection: Connection, group: str, qids: Sequence[int]) -> None:
        for qid in qids:
            owned = exists().where(_cursor(group, qid), _lives(group, qid, cursor.c.owner))
            held = exists().where(
                claim.c.grp == group, claim.c.qid == qid, claim.c.receipt.is_not(None), claim.c.until > NOW
            )
            if connection.execute(select(or_(owned, held, _undecided(group, qid)))).scalar_one():
                raise GroupInUse(group)

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the open intent on a queue."""
        query = select(intent).where(intent.c.grp == group, intent.c.qid == qid)
        with transaction(self._engine) as connection:
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else Intent(group=row["grp"], **{name: row[name] for name in OF_INTENT})


def bind(connection: Connection, wanted: Intent, member: str) -> None:
    """Bind offsets of a claimed queue to a transaction, after those that it has already bound."""
    where = f"queue {wanted.qid} of group {wanted.group!r}"
    mine = select(cursor).where(_cursor(wanted.group, wanted.qid))
    row = connection.execute(mine.with_for_update()).one_or_none()
    if row is None or row.owner != member or row.epoch != wanted.epoch:
        raise LeaseLost(f"{where} is not {member}'s any more")
    start = _extended(connection, wanted, member)
    if start is None:
        raise LeaseLost(f"{where} is bound to another undecided transaction")
    if start != row.off:  # detected now, not after local work that could not be undone
        raise LeaseLost(f"{where} is at {row.off}, not at {start}")


def apply(connection: Connection, txid: int, decision: Decision) -> None:
    """Move the cursors of a transaction's intents on COMMIT, and end the intents."""
    same = (cursor.c.grp == intent.c.grp) & (cursor.c.qid == intent.c.qid)
    query = select(cursor.c.off, intent).join_from(intent, cursor, same).where(intent.c.txid == txid)
    rows = connection.execute(query.order_by(intent.c.grp, intent.c.qid).with_for_update(of=cursor)).all()
    if decision is Decision.COMMIT:
        _move(connection, rows)
    connection.execute(delete(intent).where(intent.c.txid == txid))


def _extended(connection: Connection, wanted: Intent, member: str) -> int | None:
    values = {name: getattr(wanted, name) for name in OF_INTENT} | {"grp": wanted.group, "member": member}
    statement = insert(intent).values(values)
    again = (intent.c.end == wanted.end) & (intent.c.start <= wanted.start)
    extend = statement.on_conflict_do_update(
        index_elements=["grp", "qid"],
        set_={"end": wanted.end},
        where=(intent.c.txid == wanted.txid) & ((intent.c.end == wanted.start) | again),
    )
    start: int | None = connection.execute(extend.returning(intent.c.start)).scalar()
    return start


def _move(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    for row in rows:
        if row.off != row.start:
            raise EffectConflict(f"the cursor of group {row.grp!r} on queue {row.qid} is at {row.off}, not {row.start}")
        connection.execute(update(cursor).where(_cursor(row.grp, row.qid)).values(off=row.end))
