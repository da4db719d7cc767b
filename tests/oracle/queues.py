"""Consumer groups in memory: cursors fenced by owner and epoch, leases by the store's clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tests.oracle.home import Home
from tests.oracle.log import MemoryLog
from tests.oracle.names import Names
from tests.oracle.rows import ClaimRow, Cursor, Kept, Letter
from txsaga.consume.claim import Burial
from txsaga.consume.groups_store import Queues
from txsaga.core.records import ClaimedQueue, Intent
from txsaga.errors import GroupInUse, LeaseLost


class MemoryQueues(Queues):
    """Who owns which queue, and how far each group has read."""

    def __init__(self, home: Home, names: Names, log: MemoryLog) -> None:
        self._home, self._names, self._log = home, names, log
        self._leases: dict[tuple[str, str, str], datetime] = {}

    def renew(self, group: str, member: str, topics: Sequence[str], ttl: timedelta) -> Mapping[str, Sequence[str]]:
        """Take or renew leases and return the live members."""
        with self._home.writing():
            now = self._home.now()
            self._leases = {lease: until for lease, until in self._leases.items() if until > now}
            self._leases |= {(group, topic, member): now + ttl for topic in topics}
            return {topic: self.members(group, topic) for topic in topics}

    def members(self, group: str, topic: str) -> Sequence[str]:
        """Return the live members of a group that read a topic, sorted."""
        with self._home.lock:
            return sorted(
                name for of, read, name in self._leases if (of, read) == (group, topic) and self._lives(of, read, name)
            )

    def leave(self, group: str, member: str, topics: Sequence[str]) -> None:
        """Drop leases and give back the member's queues."""
        with self._home.writing() as kept:
            for topic in topics:
                self._leases.pop((group, topic, member), None)
            for (of, qid), cursor in kept.cursors.items():
                if (of, cursor.owner) == (group, member) and self._topic(qid) in topics:
                    kept.cursors[of, qid] = cursor._replace(owner=None)

    def topic(self, qid: int) -> str:
        """Return the topic of a queue."""
        return self._names.place(qid)[0]

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet."""
        with self._home.writing() as kept:
            self._names.require_topics(starts)
            for qid, offset in starts.items():
                kept.cursors.setdefault((group, qid), Cursor(offset))

    def acquire(self, group: str, member: str, qid: int) -> ClaimedQueue | None:
        """Own a queue with a raised epoch, if it is free."""
        with self._home.writing() as kept:
            cursor, topic = kept.cursors.get((group, qid)), self._topic(qid)
            if cursor is None or (group, qid) in kept.intents or not self._lives(group, topic, member):
                return None
            if cursor.owner not in (None, member) and self._lives(group, topic, cursor.owner):
                return None
            owned = kept.cursors[group, qid] = Cursor(cursor.offset, member, cursor.epoch + 1)
            return ClaimedQueue(group, qid, owned.offset, owned.epoch)

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""
        with self._home.writing() as kept:
            cursor = kept.cursors.get((group, qid))
            if cursor is not None and cursor.owner == member:
                kept.cursors[group, qid] = cursor._replace(owner=None)

    def advance(self, claim: ClaimedQueue, member: str, offset: int) -> ClaimedQueue:
        """Move a cursor that is still the claim's."""
        place = (claim.group, claim.qid)
        with self._home.writing() as kept:
            cursor = kept.cursors.get(place)
            if cursor is None or (cursor.owner, cursor.epoch) != (member, claim.epoch):
                raise LeaseLost(f"queue {claim.qid} is no longer {member}'s; drop the work")
            if cursor.offset not in (claim.offset, offset):
                raise LeaseLost(f"queue {claim.qid} stands at {cursor.offset}, not at {claim.offset}; read it again")
            if place in kept.intents:
                raise LeaseLost(f"offsets of queue {claim.qid} are bound to a transaction; it moves them")
            kept.cursors[place] = cursor._replace(offset=offset)
            return claim._replace(offset=offset)

    def reset(self, group: str, positions: Mapping[int, int]) -> None:
        """Put cursors elsewhere and forget the claims there."""
        with self._home.writing() as kept:
            self._is_empty(kept, group, positions, "the group was reset")
            for qid, offset in positions.items():
                kept.cursors[group, qid] = Cursor(offset, None, kept.cursors[group, qid].epoch + 1)

    def forget(self, group: str, qids: Collection[int]) -> None:
        """Drop cursors and claims."""
        with self._home.writing() as kept:
            self._is_empty(kept, group, qids, "the group left its topic")
            for qid in qids:
                kept.cursors.pop((group, qid), None)

    def purge(self, qids: Sequence[int]) -> int:
        """Move tails and cursors to the heads."""
        with self._home.writing() as kept:
            for group in sorted({group for group, qid in kept.cursors if qid in qids}):
                self._is_empty(kept, group, qids, "the topic was purged")
            for place, cursor in kept.cursors.items():
                if place[1] in qids:
                    kept.cursors[place] = Cursor(self._log.bounds(qids)[place[1]].head, None, cursor.epoch + 1)
            return self._log.purge(qids)

    def _is_empty(self, kept: Kept, group: str, qids: Collection[int], why: str) -> None:
        """Drop the claims on queues that nobody is at work on."""
        claims = [row for row in kept.claims.values() if row.group == group and row.qid in qids]
        if any(row.is_held(self._home.now()) for row in claims):
            raise GroupInUse(group)
        for qid in qids:
            cursor = kept.cursors.get((group, qid))
            owner = None if cursor is None else cursor.owner
            if (group, qid) in kept.intents or self._lives(group, self._topic(qid), owner):
                raise GroupInUse(group)
        self._drop(kept, claims, why)

    def _drop(self, kept: Kept, claims: Iterable[ClaimRow], why: str) -> None:
        """Drop claims; replayed messages are dead letters again: no other copy may be."""
        for row in claims:
            del kept.claims[row.place]
            if row.copy is not None and kept.letter_of(row) is None:
                burial, id = Burial(row.copy, self._topic(row.qid), why, None), self._home.next_letter()
                kept.letters[id] = Letter(id, self._home.now(), row, burial)

    def is_in_use(self, group: str) -> bool:
        """Tell whether a member of a group lives, holds messages, or has bound some."""
        now, kept = self._home.now(), self._home.kept
        return (
            any(of == group and until > now for (of, _, _), until in self._leases.items())
            or any(of == group for of, _ in kept.intents)
            or any(row.is_held(now) for row in kept.claims.values() if row.group == group)
        )

    def forget_group(self, group: str, why: str) -> None:
        """Drop a group's cursors, claims and leases; the caller holds the lock."""
        kept = self._home.kept
        kept.cursors = {place: cursor for place, cursor in kept.cursors.items() if place[0] != group}
        self._drop(kept, [row for row in kept.claims.values() if row.group == group], why)
        self._leases = {lease: until for lease, until in self._leases.items() if lease[0] != group}

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the intent that is open on a queue."""
        with self._home.lock:
            return self._home.kept.intents.get((group, qid))

    def _topic(self, qid: int) -> str:
        return self._names.place(qid)[0]

    def _lives(self, group: str, topic: str, member: str | None) -> bool:
        until = self._leases.get((group, topic, member or ""))
        return until is not None and until > self._home.now()
