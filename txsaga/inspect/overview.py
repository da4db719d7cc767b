"""
Figures for people: how much is undecided, how far groups have read, what was done to a transaction and by whom.

Nothing is decided by these figures; they may be a moment old. A class without `kw_only` has its fields in the order of
the columns of its query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from txsaga.checkback.questions import Remark


@dataclass(frozen=True, slots=True)
class Undecided:
    """Transactions without a decision."""

    count: int
    parked: int
    oldest: timedelta | None
    scheduled: int = 0
    """Delayed messages are counted separately: no process needs to decide them."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a consumer group has read one queue."""

    queue: int
    tail: int
    head: int
    offset: int  # of the next message that no member of the group has received
    lowest: int  # of the first unprocessed message
    held: int
    retrying: int
    in_line: int = 0  # in an ordered group: messages before the offset that no member has received
    oldest: timedelta | None = None  # age of the first unprocessed message

    @property
    def lag(self) -> int:
        """How many messages no member of the group has received yet."""
        return self.head - max(self.offset, self.tail) + self.in_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How far a consumer group has read a topic."""

    group: str
    topic: str
    members: int
    positions: tuple[Position, ...]

    @property
    def lag(self) -> int:
        """How many messages no member of the group has received yet."""
        return sum(position.lag for position in self.positions)

    @property
    def oldest(self) -> timedelta | None:
        """Age of the oldest unprocessed message."""
        return max((position.oldest for position in self.positions if position.oldest is not None), default=None)

    @property
    def held(self) -> int:
        """How many messages are in flight or bound to transactions."""
        return sum(position.held for position in self.positions)

    @property
    def retrying(self) -> int:
        """How many messages will be delivered again."""
        return sum(position.retrying for position in self.positions)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The last tick, its age, and how many committed transactions wait for the next one."""

    tick: int
    age: timedelta
    waiting: int
    blocked: tuple[str, ...] = ()
    """Queues that ticks leave out, as topic/queue: their messages wait as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """Who did what to a transaction, when and why."""

    at: datetime
    what: str
    who: str
    why: str
    login: str | None = field(default=None, compare=False)  # at the database; `who` is only claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """How often a transaction was checked, when the next check is due, why it is parked."""

    asked: int
    due: datetime
    parked: str | None
    remarks: tuple[Remark, ...] = ()


class Progress(StrEnum):
    """The state of a transaction on the list of doubts."""

    WAITING = "waiting"  # for its next check
    ASKED = "asked"  # a member has a question about it
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtView:
    """A transaction on the list of doubts, as shown to people."""

    txid: int
    id: str
    group: str
    key: str | None
    age: timedelta
    member: str | None  # the one with a question about it
    checks: Checks

    @property
    def progress(self) -> Progress:
        """Its current state."""
        if self.checks.parked is not None:
            return Progress.PARKED
        return Progress.WAITING if self.member is None else Progress.ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRound:
    """Who led the last round of a role, and how long ago it ended; zero while one is under way."""

    leader: str
    ago: timedelta


ANSWERS = ("COMMIT", "ROLLBACK", "UNKNOWN", "NO_ANSWER")
"""Results of checks; NO_ANSWER: no member or evidence could answer, and the check does not count."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is undecided in one producer group, how many members answer for it, and the answers so far."""

    group: str
    undecided: int
    parked: int
    asked: int  # undecided ones with a question under way
    oldest: timedelta | None
    unproven: timedelta | None  # the oldest that no evidence can settle: it waits for a checker
    members: int
    answers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BranchBacklog:
    """What is unfinished in one resource, and how many branches contradict their decision there."""

    resource: str
    undecided: int  # branches whose transaction is not decided
    waiting: int  # branches whose transaction is decided, not finished yet
    oldest: timedelta | None  # of the waiting ones
    heuristics: int
