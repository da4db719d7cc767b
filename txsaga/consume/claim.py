"""
Claims: messages claimed by a consumer of the work style, and the policy of its group.

A claim holds adjacent messages of one queue for a limited time; a mask shows which of them are still open. Each claim
of a message raises its attempts, so they count deliveries and survive every restart. If the store's clock did not
decide when a claim ends, a stalled member could acknowledge what another member is working on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple, TypedDict

from txsaga.consume.dead_letter import Copy
from txsaga.core.arguments import check_kind
from txsaga.core.topic import MAX_RETENTION, check_name
from txsaga.errors import ConfigError

MOST = 60
"""Messages in one claim: their mask is one 64-bit number."""
LONGEST = timedelta(days=1)
SOONEST = timedelta(minutes=10)
"""The least time until a group expires: its members report every minute."""
COPIED = 64
"""Size of a claim on a copy: it may exist besides a claim on the message."""
MOST_ATTEMPTS = 1_000_000_000


class Style(StrEnum):
    """How a consumer group reads."""

    STREAM = "stream"
    WORK = "work"

    @property
    def named(self) -> str:
        """The style as part of a sentence."""
        return "read as a stream" if self is Style.STREAM else "processed message by message"


class PolicyChanges(TypedDict, total=False):
    """The changeable parts of a policy."""

    max_attempts: int | None
    backout: str | None
    dead_letters: bool
    first_retry: timedelta
    longest_retry: timedelta
    expires: timedelta | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a group does with messages whose work failed, and how long it is kept while no member reads."""

    ordered: bool = False
    max_attempts: int | None = 16
    backout: str | None = None
    dead_letters: bool = True
    first_retry: timedelta = timedelta(seconds=1)
    longest_retry: timedelta = timedelta(minutes=5)
    expires: timedelta | None = timedelta(days=30)
    paused: bool = False  # its members take no messages

    def __post_init__(self) -> None:
        for name in ("ordered", "dead_letters", "paused"):
            check_kind(getattr(self, name), bool, name, "give True or False")
        if self.max_attempts is not None and (
            type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MOST_ATTEMPTS
        ):
            raise ConfigError(f"max_attempts is {self.max_attempts!r}; give a whole number from 1, or None for no end")
        if self.backout is not None:
            check_name(self.backout, what="backout topic")
        for name in ("first_retry", "longest_retry"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or not timedelta() <= value <= LONGEST:
                raise ConfigError(f"{name} is {_told(value)}; give a timedelta of at most {LONGEST.days} day")
        expires = self.expires
        if expires is not None and not (isinstance(expires, timedelta) and SOONEST <= expires <= MAX_RETENTION):
            raise ConfigError(f"expires is {_told(expires)}; give a timedelta from 10 minutes on, or None for never")

    @property
    def loses(self) -> bool:
        """Whether a message is lost after its last failed attempt."""
        return self.max_attempts is not None and self.backout is None and not self.dead_letters

    def exhausted(self, attempts: int) -> bool:
        """Return whether this delivery was the last one."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def retry_in(self, attempts: int, jitter: float) -> timedelta:
        """Return how long to wait after this many deliveries: twice as long each time."""
        doubled = self.first_retry.total_seconds() * 2.0 ** min(max(attempts, 1) - 1, 60)
        return min(timedelta(seconds=min(doubled, self.longest_retry.total_seconds())) * jitter, LONGEST)


def _told(value: object) -> str:
    return str(value) if isinstance(value, timedelta) else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A consumer group as the store knows it."""

    name: str
    style: Style
    policy: Policy


class ClaimHold(NamedTuple):
    """Which member claims, and for how long."""

    member: str
    seconds: float


class Claim(NamedTuple):
    """Messages `base` to `base + size` of a queue, claimed by one member; `open` marks those to do, by bit."""

    group: str
    qid: int
    base: int
    size: int
    open: int
    attempts: int
    receipt: int
    copy: Copy | None = None  # of a replayed dead letter: its log entry may be gone

    def offsets(self) -> Iterator[int]:
        """Return the offsets of the open messages."""
        return (self.base + at for at in range(self.size) if self.open >> at & 1)

    def only(self, *offsets: int) -> Claim:
        """Return a claim on some of its messages."""
        mask, base = 0, self.base
        for offset in offsets:
            mask |= 1 << offset - base
        return self if mask == self.open else self._replace(open=mask)


class Unread(NamedTuple):
    """Messages not claimed yet: from `start` up to `end`."""

    qid: int
    start: int
    end: int


class Burial(NamedTuple):
    """A message after its last failed attempt: to a backout queue if there is one, else to the dead letters."""

    copy: Copy
    topic: str
    cause: str
    backout: int | None
    uncounted: int = 0  # 1 when it was claimed only to be buried: that is not a delivery
