"""
Work style: members of a group share its messages one by one, across all queues.

A received message is invisible to the other members for a time. Once acknowledged it is done; put back, it is
redelivered after a delay that doubles each time; out of attempts, it goes where its group's policy sends it. If a
member dies or stalls, its messages are redelivered when their claims expire: at least once, at most `max_attempts`
times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Self

from txsaga.consume.burial import bury, bury_damaged
from txsaga.consume.claim import LONGEST, MOST, Claim, ClaimHold, ConsumerGroup, Style
from txsaga.consume.delivery import Delivery, DeliveryLoop, Settlement, acknowledge
from txsaga.consume.fetching import FetchedMessages, Fetching
from txsaga.consume.membership import joined
from txsaga.consume.queue_reader import Start
from txsaga.core import facts
from txsaga.core.arguments import check_seconds
from txsaga.core.kernel import Kernel
from txsaga.core.message import Delivered
from txsaga.core.retry import PATIENCE, patiently
from txsaga.core.topic import Topic
from txsaga.core.validation import validate_wanted_tag
from txsaga.errors import BrokerClosed, ClaimLost, ConfigError, StoreUnavailable

logger = logging.getLogger("txsaga")

LINE, WINDOW = 64, 2_048
"""Messages that are lined up at once, and that a queue may have in line."""
LOOK_AGAIN = 0.1
"""Seconds between two polls for returned messages, while there are new ones."""


class Claimer:
    """Claims messages for one member."""

    def __init__(self, kernel: Kernel, queues: Mapping[int, tuple[Topic, int]], hold: ClaimHold) -> None:
        self._kernel, self._claims, self._fetching = kernel, kernel.store.claims, Fetching(kernel, queues)
        self.qids, self._hold = sorted(queues), hold
        self._after, self._look_at, self._new_first = 0, 0.0, False

    def take(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        """Claim up to `limit` messages."""
        if group.policy.paused:
            return []
        if group.policy.ordered:
            return self._in_line(group, limit)
        new_first, self._new_first = self._new_first, False
        looked = not new_first and time.monotonic() >= self._look_at
        if looked:
            if due := self._due(group, limit):
                self._new_first = True  # messages that fail at once, each time, would block all new ones
                return due
            self._look_at = time.monotonic() + LOOK_AGAIN
        if new := self._new(group, limit):
            return new
        return [] if looked else self._due(group, limit)

    def _in_line(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        """Claim from the line; lengthen it only when it yields too little, since each claim scans all of it."""
        new_first, self._new_first = self._new_first, False
        due = [] if new_first else self._due(group, limit)
        if not due and (self._line_up(group) or new_first):
            due = self._due(group, limit)
        # Messages that fail at once, each time, would keep all new ones out of the line.
        self._new_first = not new_first and (0 < len(due) < limit or any(claim.attempts > 1 for claim in due))
        return due

    def found(self, claim: Claim) -> FetchedMessages:
        """Read the open messages of a claim."""
        return self._fetching.of(claim)

    def _due(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        with self._kernel.announce.around(facts.Taking, about=group.name):
            return self._claims.take_due(group.name, self.qids, limit, self._hold)

    def _new(self, group: ConsumerGroup, limit: int) -> Sequence[Claim]:
        with self._kernel.announce.around(facts.Taking, about=group.name):
            claim = self._claims.take_new(group.name, self.qids, self._after, limit, self._hold)
        if claim is None:
            return []
        self._after = claim.qid
        return [claim]

    def _line_up(self, group: ConsumerGroup) -> bool:
        found = self._claims.unread(group.name, self.qids, self._after, LINE, WINDOW)
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


IDLE = 0.5
"""Seconds between two polls when no tick announces news."""
UNACKNOWLEDGED = "it was not acknowledged at any of its deliveries"
POLICY = 5.0
"""Seconds until a changed policy is followed, and the group is marked as seen again."""


class Consumer:
    """Receives messages for one member of a group."""

    def __init__(
        self,
        kernel: Kernel,
        group: str,
        topics: Iterable[str],
        *,
        member: str,
        batch: int = 32,
        invisible: timedelta = timedelta(seconds=30),
        start: Start = "earliest",
        tag: str | None = None,
        wanted: Callable[[Delivered], bool] | None = None,
        on_close: Callable[[Consumer], None] = lambda _: None,
    ) -> None:
        if not isinstance(invisible, timedelta) or not timedelta(milliseconds=100) <= invisible <= LONGEST:
            raise ConfigError(f"invisible is {invisible!r}; give a timedelta from 0.1 seconds to one day")
        validate_wanted_tag(tag)
        self.group, self.member, self._batch = group, member, _count(batch, "batch")
        self._wanted = wanted if tag is None else lambda message: message.tag == tag
        self._kernel, self._on_close = kernel, on_close
        self._group, queues = joined(kernel, group, Style.WORK, topics, start)
        self._policy_until = time.monotonic() + POLICY
        self._settlement = Settlement(kernel, invisible, lambda: self._group.policy)
        self._loop = DeliveryLoop(self._settlement, invisible.total_seconds())
        self._claimer = Claimer(kernel, queues, ClaimHold(member, invisible.total_seconds()))
        self._closed = False

    def __repr__(self) -> str:
        return f"<Consumer {self.member} of group {self.group}>"

    def receive(self, count: int | None = None, *, wait: float = 0.0, patience: float = PATIENCE) -> list[Delivery]:
        """Return up to `count` messages, waiting `wait` seconds for the first, `patience` for an unavailable store."""
        check_seconds(wait, "wait")
        check_seconds(patience, "patience")
        end, most = time.monotonic() + wait, self._batch if count is None else _count(count, "count")
        while True:
            if found := patiently(lambda: self._take(most), patience):
                return found
            left = end - time.monotonic()
            if left <= 0 or self._closed:
                return []
            self._kernel.store.log.wait(min(IDLE, left))
            if self._closed:
                return []

    def messages(self, *, wait: float | None = None) -> Generator[Delivery]:
        """Yield messages one by one; end after `wait` idle seconds, or never without it."""
        if wait is not None:
            check_seconds(wait, "wait")
        return self._messages(wait)

    def _messages(self, wait: float | None) -> Generator[Delivery]:
        while not self._closed:
            try:
                messages = self.receive(wait=60.0 if wait is None else wait)
            except StoreUnavailable as away:
                if wait is not None:
                    raise
                said = "group %s can't read: %s; it continues when the store is reachable"
                logger.warning(said, self.group, away, extra={"group": self.group})
                continue
            if not messages and wait is not None:
                return
            yield from self._loop.out(messages, lambda: self._closed)

    def __iter__(self) -> Iterator[Delivery]:
        return self.messages()

    def ack(self, messages: Sequence[Delivery]) -> None:
        """Acknowledge many messages at once; `ClaimLost` when any of them came too late."""
        acknowledge(self._settlement, messages)

    def close(self) -> None:
        """Give back the messages that were not worked on; running iterations end."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._loop.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, most: int) -> list[Delivery]:
        if self._closed:
            raise BrokerClosed("consumer", "broker.consumer()")
        self._settlement.require_ours()
        self._follow_policy()
        # When a member dies, all messages of its claims count as delivered: with a single attempt each gets its own
        # claim.
        count = 1 if self._group.policy.max_attempts == 1 else most
        found: list[Delivery] = []
        while not found and not self._closed and (claims := self._claimer.take(self._group, count)):
            for claim in claims:
                try:
                    found += self._received(claim)
                except ClaimLost as lost:
                    logger.warning("%s", lost, extra={"group": self.group})
        return found

    def _received(self, claim: Claim) -> list[Delivery]:
        messages, damaged = self._claimer.found(claim)
        for damage in damaged:
            bury_damaged(self._kernel, claim.only(damage.offset), damage)
        wanted = messages if self._wanted is None else [*filter(self._wanted, messages)]
        if gone := claim.open.bit_count() - len(messages) - len(damaged):
            logger.error("retention deleted %d messages of group %s", gone, self.group, extra={"group": self.group})
        if len(wanted) + len(damaged) < claim.open.bit_count():
            told = {message.offset for message in wanted} | {damage.offset for damage in damaged}
            self._settlement.acknowledge(claim.only(*({*claim.offsets()} - told)))
        policy = self._group.policy
        if policy.max_attempts is not None and claim.attempts > policy.max_attempts:
            for message in wanted:
                bury(self._kernel, policy, claim.only(message.offset), message, UNACKNOWLEDGED, uncounted=1)
            return []
        return [Delivery(self._settlement, claim, message) for message in wanted]

    def _follow_policy(self) -> None:
        if time.monotonic() > self._policy_until:
            with self._kernel.announce.around(facts.Renewing, about=self.group):
                self._group = self._kernel.store.groups.touch(self.group, Style.WORK, self._claimer.qids)
            self._policy_until = time.monotonic() + POLICY


def _count(given: object, name: str) -> int:
    if type(given) is not int or not 1 <= given <= MOST:
        raise ConfigError(f"{name} is {given!r}; give a whole number from 1 to {MOST}")
    return given
