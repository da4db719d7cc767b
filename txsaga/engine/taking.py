"""
What a consumer takes next: what came back and is due, else what nobody has taken yet.

A group that keeps order puts new messages in line by their keys first, then takes from the line: nothing is handed
out while something before it has its key. The line of a queue is bounded, so a key that fails again and again holds
up its neighbours only when thousands wait behind it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from txsaga.engine.fetching import Fetching, Found
from txsaga.engine.kernel import Kernel
from txsaga.model import facts
from txsaga.model.claim import Claim, ConsumerGroup, Hold
from txsaga.model.topic import Topic

LINE, WINDOW = 64, 2_048
"""Messages that are put in line at once, and that a queue may have in line."""
LOOK_AGAIN = 0.1
"""Seconds between two looks at what came back, while there is something new."""


class Taking:
    """Takes messages for one member."""

    def __init__(self, kernel: Kernel, queues: Mapping[int, tuple[Topic, int]], hold: Hold) -> None:
        self._kernel, self._claims, self._fetching = kernel, kernel.store.claims, Fetching(kernel, queues)
        self._qids, self._hold = sorted(queues), hold
        self._after, self._look_at, self._new_first = 0, 0.0, False

    def take(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        """Claim up to `limit` messages."""
        if group.policy.ordered:
            return self._in_line(group, limit)
        new_first, self._new_first = self._new_first, False
        looked = not new_first and time.monotonic() >= self._look_at
        if looked:
            if due := self._due(group, limit):
                self._new_first = True  # what comes again at once, each time, would hold up all that is new
                return due
            self._look_at = time.monotonic() + LOOK_AGAIN
        if new := self._new(group, limit):
            return new
        return [] if looked else self._due(group, limit)

    def _in_line(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        """Claim from the line; it is made longer when it gives too little, since each claim looks through all of it."""
        new_first, self._new_first = self._new_first, False
        due = [] if new_first else self._due(group, limit)
        if not due and (self._line_up(group) or new_first):
            due = self._due(group, limit)
        # What comes again at once, each time, would keep all that is new out of the line.
        self._new_first = not new_first and (0 < len(due) < limit or any(claim.attempts > 1 for claim in due))
        return due

    def found(self, claim: Claim) -> Found:
        """Read the open messages of a claim."""
        return self._fetching.of(claim)

    def _due(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        with self._kernel.announce.around(facts.Taking, about=group.name):
            return self._claims.take_due(group.name, self._qids, limit, self._hold)

    def _new(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        with self._kernel.announce.around(facts.Taking, about=group.name):
            claim = self._claims.take_new(group.name, self._qids, self._after, limit, self._hold)
        if claim is None:
            return []
        self._after = claim.qid
        return [claim]

    def _line_up(self, group: ConsumerGroup) -> bool:
        found = self._claims.unread(group.name, self._qids, self._after, LINE, WINDOW)
        if found is None:
            return False
        self._after = found.qid
        keys = {
            m.offset: m.key if m.ordering_key is None else m.ordering_key
            for m in self._fetching.read(found.qid, found.start, found.end).messages
        }
        hashed = [_hashed(keys.get(offset)) for offset in range(found.start, found.end)]
        with self._kernel.announce.around(facts.Ordering, about=group.name):
            self._claims.line_up(group.name, found, hashed)
        return True


def _hashed(key: str | None) -> int | None:
    return None if key is None else int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)
