"""Consumer groups in memory: cursors fenced by owner and epoch, leases by the store's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from txsaga.adapters.memory.home import Home
from txsaga.adapters.memory.rows import Cursor
from txsaga.errors import LeaseLost
from txsaga.model.records import Claimed, Intent


class MemoryQueues:
    """Who owns which queue, and how far each group has read."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._leases: dict[tuple[str, str], datetime] = {}

    def renew(self, group: str, member: str, ttl: timedelta) -> Sequence[str]:
        """Take or renew a lease and return the live members."""
        with self._home.writing():
            self._leases[group, member] = self._home.now() + ttl
            return self.members(group)

    def members(self, group: str) -> Sequence[str]:
        """Return the live members of a group, sorted."""
        with self._home.lock:
            return sorted(name for of, name in self._leases if of == group and self._lives(group, name))

    def leave(self, group: str, member: str) -> None:
        """Drop a lease and give back the member's queues."""
        with self._home.writing() as kept:
            self._leases.pop((group, member), None)
            for place, cursor in kept.cursors.items():
                if place[0] == group and cursor.owner == member:
                    kept.cursors[place] = cursor._replace(owner=None)

    def create_cursors(self, group: str, starts: Mapping[int, int]) -> None:
        """Create cursors that do not exist yet."""
        with self._home.writing() as kept:
            for qid, offset in starts.items():
                kept.cursors.setdefault((group, qid), Cursor(offset))

    def positions(self, group: str, qids: Sequence[int]) -> Mapping[int, int]:
        """Return the offsets of cursors that exist."""
        with self._home.lock:
            cursors = self._home.kept.cursors
            return {qid: cursors[group, qid].offset for qid in qids if (group, qid) in cursors}

    def acquire(self, group: str, member: str, qid: int) -> Claimed | None:
        """Own a queue with a raised epoch, if it is free."""
        with self._home.writing() as kept:
            cursor = kept.cursors.get((group, qid))
            if cursor is None or (group, qid) in kept.intents or not self._lives(group, member):
                return None
            if cursor.owner not in (None, member) and self._lives(group, cursor.owner):
                return None
            owned = kept.cursors[group, qid] = Cursor(cursor.offset, member, cursor.epoch + 1)
            return Claimed(group, qid, owned.offset, owned.epoch)

    def release(self, group: str, member: str, qid: int) -> None:
        """Give a queue back."""
        with self._home.writing() as kept:
            cursor = kept.cursors.get((group, qid))
            if cursor is not None and cursor.owner == member:
                kept.cursors[group, qid] = cursor._replace(owner=None)

    def advance(self, claim: Claimed, member: str, offset: int) -> Claimed:
        """Move a cursor that is still the claim's."""
        place = (claim.group, claim.qid)
        with self._home.writing() as kept:
            cursor = kept.cursors.get(place)
            if cursor is None or (cursor.owner, cursor.epoch) != (member, claim.epoch):
                raise LeaseLost(f"queue {claim.qid} is no longer {member}'s; drop the work")
            if cursor.offset != claim.offset:
                raise LeaseLost(f"queue {claim.qid} stands at {cursor.offset}, not at {claim.offset}; read it again")
            if place in kept.intents:
                raise LeaseLost(f"offsets of queue {claim.qid} are bound to a transaction; it moves them")
            kept.cursors[place] = cursor._replace(offset=offset)
            return claim._replace(offset=offset)

    def intent_on(self, group: str, qid: int) -> Intent | None:
        """Return the intent that is open on a queue."""
        with self._home.lock:
            return self._home.kept.intents.get((group, qid))

    def reset(self, group: str, offsets: Mapping[int, int]) -> None:
        """Put cursors elsewhere and fence their owners."""
        with self._home.writing() as kept:
            for qid, offset in offsets.items():
                cursor = kept.cursors.get((group, qid))
                if cursor is not None:
                    kept.cursors[group, qid] = Cursor(offset, None, cursor.epoch + 1)

    def _lives(self, group: str, member: str | None) -> bool:
        until = self._leases.get((group, member or ""))
        return until is not None and until > self._home.now()
