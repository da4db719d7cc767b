"""
Work style: members of a group share its messages one by one, whatever queue they lie in.

A received message is invisible to the others for a time. Acknowledged it is done, put back it comes again after a
rest that doubles each time, and when its attempts are used up it goes where its group's policy says. If a member dies
or stalls, its messages come again when their time is over: at least once, at most `max_attempts` times.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from txsaga.engine.burial import bury
from txsaga.engine.hands import Hands
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import patiently
from txsaga.engine.received import Received
from txsaga.engine.taking import Taking
from txsaga.errors import BrokerClosed, ClaimLost, ConfigError, StoreUnavailable
from txsaga.model.claim import LONGEST, MOST, Claim, ConsumerGroup, Hold
from txsaga.model.topic import Topic

logger = logging.getLogger("txsaga")

IDLE = 0.5
"""Seconds between two looks when no tick announces news."""
LOST = "its member was lost, or its transaction rolled back, at each delivery"
POLICY = 5.0
"""Seconds until a policy that somebody changed is followed."""


class Consumer:
    """Receives messages for one member of a group."""

    def __init__(
        self,
        kernel: Kernel,
        group: ConsumerGroup,
        queues: Mapping[int, tuple[Topic, int]],
        *,
        member: str,
        batch: int = 32,
        invisible: timedelta = timedelta(seconds=30),
        tag: str | None = None,
        jitter: Callable[[], float] = lambda: 1.0,
        on_close: Callable[[Consumer], None] = lambda _: None,
    ) -> None:
        if not isinstance(invisible, timedelta) or not timedelta(milliseconds=100) <= invisible <= LONGEST:
            raise ConfigError(f"invisible is {invisible!r}; give a timedelta from 0.1 seconds to one day")
        self.group, self.member, self._tag, self._batch = group.name, member, tag, _count(batch, "batch")
        self._kernel, self._on_close = kernel, on_close
        self._group, self._policy_until = group, time.monotonic() + POLICY
        self._hands = Hands(kernel, invisible, lambda: self._group.policy, jitter)
        self._half_time = invisible.total_seconds() / 2
        self._taking = Taking(kernel, queues, Hold(member, invisible.total_seconds()))
        self._waiting: deque[Received] = deque()
        self._closed = False

    def receive(self, count: int | None = None, *, wait: float = 0.0) -> list[Received]:
        """Take up to `count` messages, waiting so many seconds for the first."""
        end, most = time.monotonic() + wait, self._batch if count is None else _count(count, "count")
        while True:
            if found := patiently(lambda: self._take(most)):
                return found
            left = end - time.monotonic()
            if left <= 0 or self._closed:
                return []
            self._kernel.store.log.wait(min(IDLE, left))
            if self._closed:
                return []

    def messages(self, *, wait: float | None = None) -> Iterator[Received]:
        """Yield messages one by one; `wait` ends it after so many idle seconds, else it goes on for ever."""
        while not self._closed:
            try:
                self._waiting.extend(self.receive(wait=60.0 if wait is None else wait))
            except StoreUnavailable as away:
                if wait is not None:
                    raise
                logger.warning("group %s can't read: %s; it goes on when the store is back", self.group, away)
                continue
            if not self._waiting and wait is not None:
                return
            try:
                yield from self._handed_out()
            finally:
                self._give_rest_back()

    def __iter__(self) -> Iterator[Received]:
        """Yield messages for ever."""
        return self.messages()

    def ack(self, messages: Sequence[Received]) -> None:
        """Acknowledge many messages at once; `ClaimLost` when any of them came too late."""
        calls = [(message, self._kernel.acks.submit(message.claim)) for message in messages if message.require_held()]
        lost = []
        for message, call in calls:
            try:
                call.result()
                message.settle()
            except ClaimLost as reason:
                lost.append(reason)
        if lost:
            raise lost[0]

    def close(self) -> None:
        """Give back what nobody has worked on; whoever iterates is at the end."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._give_rest_back()

    def __enter__(self) -> Self:
        """Use the consumer as a context manager."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _take(self, count: int) -> list[Received]:
        if self._closed:
            raise BrokerClosed
        self._follow_policy()
        found: list[Received] = []
        while not found and not self._closed and (claims := self._taking.take(self._group, count)):
            for claim in claims:
                try:
                    found += self._received(claim)
                except ClaimLost as lost:
                    logger.warning("%s", lost)
        return found

    def _received(self, claim: Claim) -> list[Received]:
        """Read a claim's messages; those that nobody is to work on are put where they belong."""
        messages = self._taking.delivered(claim)
        wanted = [message for message in messages if self._tag is None or message.tag == self._tag]
        unwanted = set(claim.offsets()) - {message.offset for message in wanted}
        if gone := claim.open.bit_count() - len(messages):
            logger.error("%d messages of group %s are gone by retention", gone, self.group)
        if unwanted:
            self._hands.acknowledge(claim.only(*unwanted))
        policy = self._group.policy
        if policy.max_attempts is not None and claim.attempts > policy.max_attempts:
            for message in wanted:
                bury(self._kernel, policy, claim.only(message.offset), message, LOST)
            return []
        return [Received(self._hands, claim.only(message.offset), message) for message in wanted]

    def _follow_policy(self) -> None:
        if time.monotonic() > self._policy_until:
            self._group = self._kernel.store.groups.find(self.group) or self._group
            self._policy_until = time.monotonic() + POLICY

    def _handed_out(self) -> Iterator[Received]:
        renew_at = time.monotonic() + self._half_time
        while self._waiting:
            if time.monotonic() > renew_at:
                self._hold_rest_longer()
                renew_at = time.monotonic() + self._half_time
            if self._waiting:
                yield self._waiting.popleft()

    def _hold_rest_longer(self) -> None:
        """Extend the claims of what waits here; what is lost is dropped, since it comes again."""
        for receipt in {message.claim.receipt for message in self._waiting}:
            waiting = [message for message in self._waiting if message.claim.receipt == receipt]
            try:
                waiting[0].extend()
            except ClaimLost as lost:
                logger.warning("%s", lost)
                self._waiting = deque(message for message in self._waiting if message not in waiting)

    def _give_rest_back(self) -> None:
        rest, self._waiting = self._waiting, deque()
        claims: dict[tuple[int, int, int], Claim] = {}
        for message in rest:
            place = message.claim.qid, message.claim.base, message.claim.size
            known = claims.get(place, message.claim)
            claims[place] = known._replace(open=known.open | message.claim.open)
        for claim in claims.values():
            self._hands.give_back(claim)


def _count(given: object, name: str) -> int:
    if type(given) is not int or not 1 <= given <= MOST:
        raise ConfigError(f"{name} is {given!r}; give a whole number from 1 to {MOST}")
    return given
