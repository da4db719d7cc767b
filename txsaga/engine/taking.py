"""
What a consumer takes next: what came back and is due, else what nobody has taken yet.

A group that keeps order puts new messages in line by their keys first, then takes from the line: nothing is handed
out while something before it has its key. The line of a queue is bounded, so a key that fails again and again holds
up its neighbours only when hundreds wait behind it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from txsaga.engine.kernel import Kernel
from txsaga.model import facts
from txsaga.model.claim import Claim, ConsumerGroup, Hold
from txsaga.model.layout import Batch
from txsaga.model.message import Delivered
from txsaga.model.topic import Topic

LINE, WINDOW = 64, 512
"""Messages that are put in line at once, and that a queue may have in line."""
LOOK_AGAIN = 0.1
"""Seconds between two looks at what came back, while there is something new."""


class Taking:
    """Takes messages for one member."""

    def __init__(self, kernel: Kernel, queues: Mapping[int, tuple[Topic, int]], hold: Hold) -> None:
        self._kernel, self._claims, self._log = kernel, kernel.store.claims, kernel.store.log
        self._queues, self._qids, self._hold = queues, sorted(queues), hold
        self._after, self._look_at = 0, 0.0

    def take(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        """Claim up to `limit` messages."""
        looked = time.monotonic() >= self._look_at
        if looked:
            if due := self._due(group, limit):
                return due
            self._look_at = time.monotonic() + LOOK_AGAIN
        if group.policy.ordered:
            looked = not self._line_up(group) and looked
        elif new := self._new(group, limit):
            return new
        return [] if looked else self._due(group, limit)

    def delivered(self, claim: Claim) -> list[Delivered]:
        """Read the open messages of a claim; those that retention dropped are not among them."""
        topic, index = self._queues[claim.qid]
        if claim.copy is not None:
            return [claim.copy.delivered(topic.name, index, claim.base)]
        found = self._read(claim.qid, claim.base, claim.base + claim.size)
        if claim.open.bit_count() == claim.size:
            return found
        wanted = set(claim.offsets())
        return [message for message in found if message.offset in wanted]

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
            for m in self._read(found.qid, found.start, found.end)
        }
        hashed = [_hashed(keys.get(offset)) for offset in range(found.start, found.end)]
        with self._kernel.announce.around(facts.Ordering, about=group.name):
            self._claims.line_up(group.name, found, hashed)
        return True

    def _read(self, qid: int, start: int, end: int) -> list[Delivered]:
        topic, index = self._queues[qid]
        store, found = self._kernel.store.registry.identity, list[Delivered]()
        while start < end:
            entries = self._log.fetch(qid, start, end - start, end)
            for entry in entries:
                batch = Batch(entry, topic=topic.name, queue=index, qid=qid, store=store, start=start, end=end)
                found += batch.messages()
                start = batch.end
            if not entries:
                break
        return found


def _hashed(key: str | None) -> int | None:
    return None if key is None else int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)
