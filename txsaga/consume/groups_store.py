"""
Consumer groups on PostgreSQL: their policies, their dead letters, and their cursors, fenced by owner and epoch.

A group keeps its style for ever: if its cursors were moved in both styles, messages would be skipped silently. A member
that stalled past its lease finds its epoch raised and can't move the cursor: otherwise two members would both
acknowledge the same messages. The database's clock decides leases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from txsaga.consume.claim import COPIED, ConsumerGroup, Policy, Style
from txsaga.consume.claim_end_statements import SQL as END
from txsaga.consume.dead_letter import Copy, DeadLetter
from txsaga.core.decision import Decision
from txsaga.core.records import ClaimedQueue, Intent
from txsaga.errors import EffectConflict, GroupInUse, GroupKindMismatch, LeaseLost, TopicNotRead, UnknownGroup
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore, Run

SQL = sql_files.read("consume/sql/group.sql")
QUEUES = sql_files.read("consume/sql/cursor.sql")
LEASES = sql_files.read("store/sql/lease.sql")


class ConsumerGroups(NamespaceStore):
    """The consumer groups of one namespace."""

    def open(self, name: str, style: Style, policy: Policy) -> ConsumerGroup:
        """Register a group, or find it; the policy applies only to a new one. The group is marked as seen.

        `GroupKindMismatch` for a group of the other style: a cursor can't be moved in both.
        """
        try:
            return self.touch(name, style)
        except UnknownGroup:
            self._changed(SQL["register"], name=name, style=style.value, **asdict(policy))
        return self.touch(name, style)  # `UnknownGroup` if it expired at this moment

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a registered group."""
        return next(map(_group, self._rows(SQL["find"], name=name)), None)

    def touch(self, name: str, style: Style, qids: Collection[int] = ()) -> ConsumerGroup:
        """Mark a group as seen, at most once a minute; raise if it is gone, reads otherwise, or not these queues."""
        # Marked first: a group that expires at this moment is gone when it is read, a marked one stays.
        with self._open() as run:
            run(SQL["seen"], names=[name])
            row = run(SQL["find"], name=name).one_or_none()
            left = run(SQL["left"], name=name, qids=[*qids]).scalar() if row else None
        if row is None:
            raise UnknownGroup(name)
        known = _group(row)
        if known.style is not style:
            change = f"delete it with `txsaga group delete {name} --yes`"
            raise GroupKindMismatch(name, stored=known.style.named, asked=style.named, change=change)
        if left is not None:
            raise TopicNotRead(name, left)
        return known

    def expire(self) -> Sequence[str]:
        """Delete groups in which no member was seen for their expiry time, with cursors and claims; return their names.

        A group with a live member, claimed messages or messages bound to a transaction counts as seen. All dead letters
        stay.
        """
        self._changed(SQL["seen_at_work"])
        self._changed(SQL["left_over"])
        with self._open() as run:
            return [name for (name,) in run(SQL["over"]).all() if _forgotten(run, name, "the group expired")]

    def delete(self, name: str) -> None:
        """Delete a group with its cursors and claims; its dead letters stay. `GroupInUse` while a member works."""
        with self._open() as run:
            if run(SQL["lock"], name=name).first() is None:
                raise UnknownGroup(name)
            if not _forgotten(run, name, "the group was deleted"):
                raise GroupInUse(name)

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""
        return list(map(_group, self._rows(SQL["all"])))

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change only the named parts of a group."""
        changed = SQL["alter"].replace("{changes}", ", ".join(f"{part} = :{part}" for part in changes))
        if (row := self._row(changed, name=name, **changes)) is None:
            raise UnknownGroup(name)
        return _group(row)


def _forgotten(run: Run, name: str, why: str) -> bool:
    run(SQL["still"], name=name)
    if run(SQL["in_use"], name=name).scalar_one():
        return False
    run(END["forgotten"], grp=name, qids=None, why=why)
    run(SQL["forget"], name=name)
    return True


def _group(row: Any) -> ConsumerGroup:
    values = dict(row._mapping)
    name, style = values.pop("name"), Style(values.pop("style"))
    return ConsumerGroup(name=name, style=style, policy=Policy(**values))


class DeadLetterStore(NamespaceStore):
    """The dead letters of one namespace."""

    def list(self, group: str | None, limit: int, before: int = 2**63 - 1) -> Sequence[DeadLetter]:
        """Return dead letters before a number, newest first; of all groups if none is named."""
        which = "d.id < :before" if group is None else "d.id < :before AND d.grp = :grp"
        return self._letters(which, grp=group, limit=limit, before=before)

    def ids(self, group: str, after: int, limit: int) -> Sequence[int]:
        """Return numbers of a group's letters after a number, oldest first."""
        return [id for (id,) in self._rows(SQL["ids"], grp=group, after=after, limit=limit)]

    def get(self, id: int) -> DeadLetter | None:
        """Return one letter."""
        return next(iter(self._letters("d.id = :id", id=id, limit=1)), None)

    def replay(self, ids: Sequence[int]) -> int:
        """Redeliver letters to their groups, with their history and no attempts; return how many."""
        with self._open() as run:
            names = [name for (name,) in run(SQL["wanted"], ids=[*ids])]
            run(SQL["seen"], names=names)
            return run(SQL["replay"].replace("{copied}", str(COPIED)), ids=[*ids], names=names).rowcount

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good; return how many there were."""
        return self._changed(SQL["burn"], ids=[*ids])

    def _letters(self, which: str, **values: object) -> Sequence[DeadLetter]:
        return list(map(_letter, self._rows(SQL["letters"].replace("{which}", which), **values)))


def _letter(row: Any) -> DeadLetter:
    values = dict(row._mapping)
    return DeadLetter(copy=Copy(*map(values.pop, Copy._fields)), **values)


class Queues(NamespaceStore):
    """Cursors per group and queue."""

    def renew(self, group: str, member: str, topics: Sequence[str], ttl: timedelta) -> Mapping[str, Sequence[str]]:
        """Take or renew a member's lease on each topic; return the live members of each, sorted."""
        kinds = {_kind(group, name): name for name in sorted(topics)}
        live: dict[str, list[str]] = {name: [] for name in kinds.values()}
        with self._open() as run:
            run(LEASES["mark"], kinds=[*kinds], name=member, ttl=ttl)
            run(LEASES["end_others"], kinds=[*kinds], slack=timedelta(0))
            for kind, name in run(LEASES["alive"], kinds=[*kinds]):
                live[kinds[kind]].append(name)
        return live

    def leave(self, group: str, member: str, topics: Sequence[str]) -> None:
        """Drop a member's leases and give back its queues of these topics."""
        with self._open() as run:
            run(LEASES["drop"], kinds=[_kind(group, name) for name in topics], name=member)
            run(QUEUES["lock_owned"], group=group, member=member, topics=[*topics])
            run(QUEUES["leave"], group=group, member=member, topics=[*topics])

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet, at these offsets."""
        self._changed(QUEUES["create"], group=group, **_columns(starts))

    def acquire(self, group: str, member: str, qid: int) -> ClaimedQueue | None:
        """Own a queue, with a raised epoch.

        None while a live member owns it or an intent is open on it, and without a lease on its topic.
        """
        with self._open() as run:
            run(QUEUES["lock"], group=group, qid=qid)
            row = run(QUEUES["acquire"], group=group, member=member, qid=qid).one_or_none()
        return None if row is None else ClaimedQueue(*row)

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""
        self._changed(QUEUES["release"], group=group, member=member, qid=qid)

    def advance(self, claim: ClaimedQueue, member: str, offset: int) -> ClaimedQueue:
        """Move a cursor; the same move again is no error.

        `LeaseLost` unless owner, epoch and offset are still the claim's, and while an intent is open: a member that
        does not know the cursor's position would skip unread messages.
        """
        with self._open() as run:
            run(QUEUES["lock"], group=claim.group, qid=claim.qid)
            moved = run(QUEUES["advance"], **claim._asdict(), member=member, to=offset).rowcount
        if moved != 1:
            raise LeaseLost(f"queue {claim.qid} of group {claim.group!r} is not {member}'s any more; drop the work")
        return claim._replace(offset=offset)

    def reset(self, group: str, positions: Mapping[int, int]) -> None:
        """Move cursors, by queue, and drop the claims there; all of them or none.

        `GroupInUse` while a live member owns one of the queues or holds messages of one, and while a transaction is
        bound to one.
        """
        with self._open() as run:
            _empty(run, group, positions, "the group was reset")
            run(QUEUES["reset"], group=group, **_columns(positions))

    def forget(self, group: str, qids: Collection[int]) -> None:
        """Drop a group's cursors and claims on these queues, all or none; `GroupInUse` as for `reset`."""
        with self._open() as run:
            _empty(run, group, qids, "the group left its topic")
            run(QUEUES["forget"], group=group, qids=[*qids])

    def purge(self, qids: Sequence[int]) -> int:
        """Drop the messages of queues, for every group; return how many. `GroupInUse` as for `reset`."""
        with self._open() as run:
            for (group,) in run(QUEUES["readers"], qids=[*qids]).all():
                _empty(run, group, qids, "the topic was purged")
            return int(run(QUEUES["purge"], qids=[*qids]).scalar_one())

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the open intent on a queue."""
        row = self._row(QUEUES["intent"], group=group, qid=qid)
        return None if row is None else Intent(**row._mapping)


def _kind(group: str, topic: str) -> str:
    return f"member:{group}/{topic}"


def _columns(offsets: Mapping[int, int]) -> dict[str, list[int]]:
    return {"qids": sorted(offsets), "offsets": [offsets[qid] for qid in sorted(offsets)]}


def _empty(run: Run, group: str, qids: Collection[int], why: str) -> None:
    """Drop the claims on queues that no member is working on; their cursors stay locked."""
    run(QUEUES["lock_all"], group=group, qids=[*qids])
    if run(QUEUES["in_use"], group=group, qids=[*qids]).scalar_one():
        raise GroupInUse(group)
    run(END["forgotten"], grp=group, qids=[*qids], why=why)


def bind(run: Run, wanted: Intent, member: str) -> None:
    """Bind offsets of a claimed queue to a transaction, after those that it has already bound."""
    where = f"queue {wanted.qid} of group {wanted.group!r}"
    row = run(QUEUES["lock"], group=wanted.group, qid=wanted.qid).one_or_none()
    if row is None or (row.owner, row.epoch) != (member, wanted.epoch):
        raise LeaseLost(f"{where} is not {member}'s any more")
    start = run(QUEUES["bind"], **{**asdict(wanted), "member": member}).scalar()
    if start is None:
        raise LeaseLost(f"{where} is bound to another undecided transaction")
    if start != row.off:  # detected now, not after local work that could not be undone
        raise LeaseLost(f"{where} is at {row.off}, not at {start}")


def apply(run: Run, txid: int, decision: Decision) -> None:
    """Lock the cursors of a transaction's intents, and move them on COMMIT."""
    rows = run(QUEUES["bound"], txid=txid).all()
    if decision is Decision.COMMIT:
        for row in rows:
            if row.off != row.start:
                where = f"the cursor of group {row.grp!r} on queue {row.qid}"
                raise EffectConflict(f"{where} is at {row.off}, not {row.start}")
        run(QUEUES["move"], txid=txid)
