"""
Work style: members of a group share its messages one by one, whatever queue they lie in.

A received message is invisible to the others for a time. Acknowledged it is done, put back it comes again after a
rest that doubles each time, and when its attempts are used up it goes where its group's policy says. If a member dies
or stalls, its messages come again when their time is over: at least once, at most `max_attempts` times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from txsaga.engine.burial import bury, bury_damaged
from txsaga.engine.handing import Handing
from txsaga.engine.hands import Hands
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import PATIENCE, patiently
from txsaga.engine.reading import joined
from txsaga.engine.received import Received, acknowledge
from txsaga.engine.start import Start
from txsaga.engine.taking import Taking
from txsaga.errors import BrokerClosed, ClaimLost, ConfigError, StoreUnavailable
from txsaga.model import facts
from txsaga.model.arguments import check_seconds
from txsaga.model.claim import LONGEST, MOST, Claim, Hold, Style
from txsaga.model.validation import validate_wanted_tag

logger = logging.getLogger("txsaga")

IDLE = 0.5
"""Seconds between two looks when no tick announces news."""
LOST = "its member was lost, or its transaction rolled back, at each delivery"
POLICY = 5.0
"""Seconds until a policy that somebody changed is followed, and the group counts as seen again."""


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
        jitter: Callable[[], float] = lambda: 1.0,
        on_close: Callable[[Consumer], None] = lambda _: None,
    ) -> None:
        if not isinstance(invisible, timedelta) or not timedelta(milliseconds=100) <= invisible <= LONGEST:
            raise ConfigError(f"invisible is {invisible!r}; give a timedelta from 0.1 seconds to one day")
        validate_wanted_tag(tag)
        self.group, self.member, self._tag, self._batch = group, member, tag, _count(batch, "batch")
        self._kernel, self._on_close = kernel, on_close
        self._group, queues = joined(kernel, group, Style.WORK, topics, start)
        self._policy_until = time.monotonic() + POLICY
        self._hands = Hands(kernel, invisible, lambda: self._group.policy, jitter)
        self._handing = Handing(self._hands, invisible.total_seconds())
        self._taking = Taking(kernel, queues, Hold(member, invisible.total_seconds()))
        self._closed = False

    def receive(self, count: int | None = None, *, wait: float = 0.0, patience: float = PATIENCE) -> list[Received]:
        """Take up to `count`, waiting so many seconds for the first; `patience` is for a store that is away."""
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

    def messages(self, *, wait: float | None = None) -> Generator[Received]:
        """Yield messages one by one; `wait` ends it after so many idle seconds, else it goes on for ever."""
        if wait is not None:
            check_seconds(wait, "wait")
        return self._messages(wait)

    def _messages(self, wait: float | None) -> Generator[Received]:
        while not self._closed:
            try:
                messages = self.receive(wait=60.0 if wait is None else wait)
            except StoreUnavailable as away:
                if wait is not None:
                    raise
                said = "group %s can't read: %s; it goes on when the store is back"
                logger.warning(said, self.group, away, extra={"group": self.group})
                continue
            if not messages and wait is not None:
                return
            yield from self._handing.out(messages, lambda: self._closed)

    def __iter__(self) -> Iterator[Received]:
        """Yield messages for ever."""
        return self.messages()

    def ack(self, messages: Sequence[Received]) -> None:
        """Acknowledge many messages at once; `ClaimLost` when any of them came too late."""
        acknowledge(self._hands, messages)

    def close(self) -> None:
        """Give back what nobody has worked on; whoever iterates is at the end."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._handing.give_back()

    def __enter__(self) -> Self:
        """Use the consumer as a context manager."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _take(self, most: int) -> list[Received]:
        if self._closed:
            raise BrokerClosed("consumer", "broker.consumer()")
        self._hands.require_ours()
        self._follow_policy()
        # Neighbours of what kills its member count as delivered with it: their only delivery must be one of their own.
        count = 1 if self._group.policy.max_attempts == 1 else most
        found: list[Received] = []
        while not found and not self._closed and (claims := self._taking.take(self._group, count)):
            for claim in claims:
                try:
                    found += self._received(claim)
                except ClaimLost as lost:
                    logger.warning("%s", lost, extra={"group": self.group})
        return found

    def _received(self, claim: Claim) -> list[Received]:
        """Read a claim's messages; those that nobody is to work on are put where they belong."""
        messages, damaged = self._taking.found(claim)
        for damage in damaged:
            bury_damaged(self._kernel, claim.only(damage.offset), damage)
        wanted = messages if self._tag is None else [message for message in messages if message.tag == self._tag]
        if gone := claim.open.bit_count() - len(messages) - len(damaged):
            logger.error("%d messages of group %s are gone by retention", gone, self.group, extra={"group": self.group})
        if len(wanted) + len(damaged) < claim.open.bit_count():
            told = {message.offset for message in wanted} | {damage.offset for damage in damaged}
            self._hands.acknowledge(claim.only(*({*claim.offsets()} - told)))
        policy = self._group.policy
        if policy.max_attempts is not None and claim.attempts > policy.max_attempts:
            for message in wanted:
                bury(self._kernel, policy, claim.only(message.offset), message, LOST, uncounted=1)
            return []
        return [Received(self._hands, claim, message) for message in wanted]

    def _follow_policy(self) -> None:
        if time.monotonic() > self._policy_until:
            with self._kernel.announce.around(facts.Renewing, about=self.group):
                self._group = self._kernel.store.groups.touch(self.group)
            self._policy_until = time.monotonic() + POLICY


def _count(given: object, name: str) -> int:
    if type(given) is not int or not 1 <= given <= MOST:
        raise ConfigError(f"{name} is {given!r}; give a whole number from 1 to {MOST}")
    return given
