"""
Consumer groups in memory, and the dead letters they left behind.

A group has one style: if its cursors were moved in both, messages would be skipped without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tests.oracle.home import Home
from tests.oracle.names import Names
from tests.oracle.queues import MemoryQueues
from tests.oracle.rows import ClaimRow, Letter
from txsaga.consume.claim import COPIED, ConsumerGroup, Policy, Style
from txsaga.consume.dead_letter import DeadLetter
from txsaga.consume.groups_store import ConsumerGroups, DeadLetterStore
from txsaga.errors import GroupInUse, GroupKindMismatch, TopicNotRead, UnknownGroup


class MemoryGroups(ConsumerGroups):
    """The consumer groups of one store."""

    def __init__(self, home: Home, queues: MemoryQueues) -> None:
        self._home, self._queues = home, queues
        self._groups: dict[str, ConsumerGroup] = {}
        self._last_seen: dict[str, datetime] = {}

    def open(self, name: str, style: Style, policy: Policy) -> ConsumerGroup:
        """Register a group, or find it."""
        with self._home.lock:
            known = self._groups.setdefault(name, ConsumerGroup(name=name, style=style, policy=policy))
            if known.style is not style:
                raise GroupKindMismatch(name, stored=known.style.named, asked=style.named, change="delete it")
            self._last_seen[name] = self._home.now()
            return known

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a group that is registered."""
        with self._home.lock:
            return self._groups.get(name)

    def touch(self, name: str, style: Style, qids: Collection[int] = ()) -> ConsumerGroup:
        """Note that a member is at work."""
        with self._home.lock:
            known = self._known(name)
            if known.style is not style:
                raise GroupKindMismatch(name, stored=known.style.named, asked=style.named, change="delete it")
            self._last_seen[name] = self._home.now()
            if qids and not any((name, qid) in self._home.kept.cursors for qid in qids):
                raise TopicNotRead(name, self._queues.topic(min(qids)))
            return known

    def may_work(self, name: str, *, ordered: bool) -> bool:
        """Tell whether members that work in this way may take messages of a group."""
        known = self._groups.get(name)
        return known is None or (known.style, known.policy.ordered) == (Style.WORK, ordered)

    def _known(self, name: str) -> ConsumerGroup:
        if name not in self._groups:
            raise UnknownGroup(name)
        return self._groups[name]

    def seen(self, name: str) -> None:
        """Note that somebody still wants a group, if there is one; the caller holds the lock."""
        if name in self._last_seen:
            self._last_seen[name] = self._home.now()

    def expire(self) -> Sequence[str]:
        """Delete groups that nobody was seen in for as long as they say."""
        with self._home.writing():
            for name in filter(self._queues.is_in_use, self._groups):
                self.seen(name)
            expired = [name for name in sorted(self._groups) if self._is_over(name)]
            kept = self._home.kept
            kept.cursors = {place: cursor for place, cursor in kept.cursors.items() if place[0] in self._groups}
            for name in expired:
                self._forget(name, "the group expired")
            return expired

    def delete(self, name: str) -> None:
        """Delete a group that nobody is at work in."""
        with self._home.writing():
            self._known(name)
            if self._queues.is_in_use(name):
                raise GroupInUse(name)
            self._forget(name, "the group was deleted")

    def _forget(self, name: str, why: str) -> None:
        del self._groups[name], self._last_seen[name]
        self._queues.forget_group(name, why)

    def _is_over(self, name: str) -> bool:
        expires = self._groups[name].policy.expires
        return expires is not None and self._last_seen[name] < self._home.now() - expires

    def all(self) -> Sequence[ConsumerGroup]:
        """Return all groups by name."""
        with self._home.lock:
            return [self._groups[name] for name in sorted(self._groups)]

    def alter(self, name: str, changes: Mapping[str, object]) -> ConsumerGroup:
        """Change parts of a group's policy."""
        with self._home.lock:
            known = self._known(name)
            policy = replace(known.policy, **changes)  # type: ignore[arg-type]  # it looks at them itself
            changed = self._groups[name] = replace(known, policy=policy)
            return changed


class MemoryDeadLetters(DeadLetterStore):
    """The dead letters of one store."""

    def __init__(self, home: Home, names: Names, groups: MemoryGroups) -> None:
        self._home, self._names, self._groups = home, names, groups

    def list(self, group: str | None, limit: int, before: int = 2**63 - 1) -> Sequence[DeadLetter]:
        """Return dead letters, newest first."""
        with self._home.lock:
            newest = sorted(self._home.kept.letters, reverse=True)
            letters = [self._home.kept.letters[id] for id in newest]
            return [
                self._read(letter) for letter in letters if group in (None, letter.row.group) and letter.id < before
            ][:limit]

    def ids(self, group: str, after: int, limit: int) -> Sequence[int]:
        """Return numbers of a group's letters, oldest first."""
        with self._home.lock:
            letters = sorted(self._home.kept.letters.items())
            return [id for id, letter in letters if letter.row.group == group and id > after][:limit]

    def get(self, id: int) -> DeadLetter | None:
        """Return one."""
        with self._home.lock:
            letter = self._home.kept.letters.get(id)
            return None if letter is None else self._read(letter)

    def replay(self, ids: Sequence[int]) -> int:
        """Let letters come to their group again."""
        with self._home.writing() as kept:
            known = [id for id in {*ids} & kept.letters.keys() if self._groups.find(kept.letters[id].row.group)]
            rows = {id: kept.letters[id].row for id in known}
            there = [id for id, row in rows.items() if (row.group, row.qid) in kept.cursors]
            fresh = {id: self._fresh(kept.letters[id]) for id in there}
            moved = {id: row for id, row in fresh.items() if row.place not in kept.claims}
            kept.put(*moved.values())
            for id in moved:
                del kept.letters[id]
            for row in fresh.values():
                self._groups.seen(row.group)
            return len(moved)

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good."""
        with self._home.writing() as kept:
            return len([kept.letters.pop(id) for id in {*ids} & kept.letters.keys()])

    def _fresh(self, letter: Letter) -> ClaimRow:
        """Return a letter as its message came, with what it went through; it begins to count anew."""
        row, now = letter.row, self._home.now()
        return ClaimRow(row.group, row.qid, row.base, COPIED, 1, 0, now, history=row.history, copy=letter.burial.copy)

    def _read(self, letter: Letter) -> DeadLetter:
        row, burial = letter.row, letter.burial
        return DeadLetter(
            id=letter.id,
            group=row.group,
            topic=burial.topic,
            queue=self._names.place(row.qid)[1],
            offset=row.base,
            at=letter.at,
            attempts=row.attempts,
            cause=burial.cause,
            history=list(row.history),
            copy=burial.copy,
        )
