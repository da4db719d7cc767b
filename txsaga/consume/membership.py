"""
A member of a consumer group: its leases and its share of the queues.

A lease is for a group and a topic: the queues of a topic are shared by the members that read it, so members that read
different topics leave nothing unread. The store's clock decides which members are alive. A member that can't renew in
time loses its queues to the others; it notices by its epoch, not by its own clock. A queue is given up only when none
of its offsets are bound to a transaction of this member. It is taken over only after a dead member's transaction on it
is settled, and not before that transaction's own lease is over, since its member may be alive and working. So a member
that leaves keeps the leases of topics with bound offsets: without them the next member would roll back a block that is
still running.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from txsaga.checkback.work_in_progress import TYPICAL
from txsaga.consume.claim import ConsumerGroup, Policy, Style
from txsaga.consume.groups import open_group
from txsaga.consume.queue_reader import Start, first_offset
from txsaga.core import facts
from txsaga.core.arguments import list_of
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import ClaimedQueue, Doubt
from txsaga.core.retry import patiently
from txsaga.core.topic import Topic, check_name
from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledgers


class BoundOffsets:
    """The claims of undecided transactions, each as it was before its queue was first consumed."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._firsts: dict[int, dict[int, ClaimedQueue]] = {}  # by transaction and queue

    def __contains__(self, txid: object) -> bool:
        return txid in self._firsts

    @property
    def queues(self) -> frozenset[int]:
        """The queues that they hold."""
        return frozenset().union(*self._firsts.values())

    def add(self, txid: int, claim: ClaimedQueue) -> None:
        """Record that a transaction consumes from a claim on."""
        firsts = self._firsts.setdefault(txid, {})
        first = firsts.get(claim.qid)
        if first is None or first.epoch != claim.epoch:
            firsts[claim.qid] = claim

    def forget(self, txid: int) -> list[ClaimedQueue]:
        """Drop a decided transaction; return its claims, each at its first position."""
        return list(self._firsts.pop(txid, {}).values())

    def decided(self) -> Mapping[int, Decision]:
        """Return those decided by now, with their decisions."""
        if not self._firsts:
            return {}
        with self._ledgers.open() as ledger:
            standing = {txid: ledger.standing(txid) for txid in self._firsts}
        return {txid: decision for txid, decision in standing.items() if decision is not None}


UNHEARD = timedelta(seconds=2.5 * TYPICAL)
"""Within this time a working transaction is touched, or its process's heartbeat holds it."""


class Membership:
    """Keeps the queues of one member."""

    def __init__(self, kernel: Kernel, group: str, member: str, topics: Mapping[int, str], ttl: timedelta) -> None:
        self._kernel, self._queues = kernel, kernel.store.queues
        self._group, self.member, self._ttl = group, member, ttl
        self._topic_of = dict(sorted(topics.items()))  # by queue
        self._topics = sorted(set(topics.values()))
        self.bound = BoundOffsets(kernel.store.ledgers)
        self._renew_at, self.paused = 0.0, False
        self.claims: dict[int, ClaimedQueue] = {}

    def keep(self) -> bool:
        """Renew the leases when due, and take or give up queues to match the members; return whether it was due."""
        due = time.monotonic() >= self._renew_at
        if due:
            patiently(self._keep)
        return due

    def leave(self) -> None:
        """Give back what is not bound; call it again for the others, else their leases expire."""
        bound = self.bound.queues
        loose = sorted(set(self.claims) - bound)
        kept = {self._topic_of[qid] for qid in bound}
        left = [topic for topic in self._topics if topic not in kept]
        self.claims, self._topics = {}, sorted(kept)
        with self._kernel.announce.around(facts.Releasing, about=self._group):
            if left:
                self._queues.leave(self._group, self.member, left)
            for qid in loose:
                if self._topic_of[qid] in kept:
                    self._queues.release(self._group, self.member, qid)

    def lost(self, qid: int) -> None:
        """Forget a queue that another member owns now."""
        self.claims.pop(qid, None)
        self._renew_at = 0.0

    def _keep(self) -> None:
        now = time.monotonic()
        with self._kernel.announce.around(facts.Renewing, about=self._group):
            known = self._kernel.store.groups.touch(self._group, Style.STREAM, self._topic_of)
            live = self._queues.renew(self._group, self.member, self._topics, self._ttl)
        mine, self.paused = self._share(live), known.policy.paused
        for qid in sorted(set(self.claims) - mine):
            self._give_up(qid)
        for qid in sorted(mine - set(self.claims)):
            self._take(qid, live[self._topic_of[qid]])
        complete = set(self.claims) == mine
        # While queues are missing, ask their owners more often to release them.
        self._renew_at = now + self._ttl.total_seconds() / (3 if complete else 15)

    def _share(self, live: Mapping[str, Sequence[str]]) -> set[int]:
        """Return this member's queues: a topic's members take turns.

        Topics with the same members share the turns: else many topics of one queue would all go to the first member.
        """
        turns: defaultdict[tuple[str, ...], count[int]] = defaultdict(count)
        mine = set()
        for qid, topic in self._topic_of.items():
            members = tuple(live[topic])
            if members and members[next(turns[members]) % len(members)] == self.member:
                mine.add(qid)
        return mine

    def _give_up(self, qid: int) -> None:
        intent = self._queues.intent_on(self._group, qid)
        if intent is not None and intent.txid in self.bound:
            return
        with self._kernel.announce.around(facts.Releasing, about=f"{self._group}/{qid}"):
            self._queues.release(self._group, self.member, qid)
        del self.claims[qid]

    def _take(self, qid: int, live: Sequence[str]) -> None:
        if (intent := self._queues.intent_on(self._group, qid)) is not None:
            dead = intent.member not in live or intent.member == self.member
            if intent.txid in self.bound or not dead or not self._settled(intent.txid):
                return
        with self._kernel.announce.around(facts.Acquiring, about=f"{self._group}/{qid}"):
            claim = self._queues.acquire(self._group, self.member, qid)
        if claim is not None:
            self.claims[qid] = claim

    def _settled(self, txid: int) -> bool:
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(txid)
        if life is None:
            return True
        if self._kernel.store.doubts.rests(txid, UNHEARD):
            return False  # its own lease runs, or its live process works on it for longer than a queue's lease
        doubt = Doubt(txid=txid, group=life.group, token=life.token, keyed=True, evidence=life.evidence)
        return self._kernel.settler.check(doubt).standing is not None


def joined(
    kernel: Kernel, name: str, style: Style, topics: Iterable[str], start: Start
) -> tuple[ConsumerGroup, Mapping[int, tuple[Topic, int]]]:
    """Return the group of a new reader and the queues of its topics, with the group's cursors on them."""
    advice = f"write [{topics!r}]" if isinstance(topics, str) else "give a list of names"
    names = list_of(topics, "topics", advice)
    if not names:
        raise ConfigError("a group reads topics, and none was named; name at least one")
    for topic in names:
        check_name(topic)
    check_name(name, what="consumer group", known=lambda: kernel.store.groups.find(name) is not None)
    queues = patiently(lambda: kernel.topics.by_queue(list(dict.fromkeys(names))))
    group = patiently(lambda: _positioned(kernel, name, style, list(queues), start))
    return group, queues


def _positioned(kernel: Kernel, name: str, style: Style, qids: Sequence[int], start: Start) -> ConsumerGroup:
    starts = {qid: first_offset(kernel.store.log, qid, start) for qid in qids}
    group = open_group(kernel, name, style, Policy())
    with kernel.announce.around(facts.Positioning, about=name):
        kernel.store.queues.create_cursors(name, starts)
    return group
