"""
What people look at: how much is undecided, how far groups have read, what was done to a transaction and by whom.

Nothing decides by these figures; they may be a moment old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from txsaga.checkback.questions import Remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Transactions that nobody has decided yet."""

    count: int
    parked: int
    oldest: timedelta | None
    scheduled: int = 0
    """Messages for later are counted by themselves: nobody needs to decide them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a consumer group has read one queue."""

    queue: int
    tail: int
    head: int
    offset: int  # of the next message that nobody of the group has had
    lowest: int  # of the first message that is not done
    held: int
    resting: int
    in_line: int = 0  # of a group that keeps order: before the offset, and nobody has had them
    oldest: timedelta | None = None  # age of the first message that is not done

    @property
    def lag(self) -> int:
        """How many messages nobody of the group has had yet."""
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
        """How many messages nobody of the group has had yet."""
        return sum(position.lag for position in self.positions)

    @property
    def oldest(self) -> timedelta | None:
        """Age of the oldest message that is not done."""
        return max((position.oldest for position in self.positions if position.oldest is not None), default=None)

    @property
    def held(self) -> int:
        """How many messages are in the hands of members or bound to transactions."""
        return sum(position.held for position in self.positions)

    @property
    def resting(self) -> int:
        """How many messages will come again."""
        return sum(position.resting for position in self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    login: str | None = field(default=None, compare=False)  # who it was at the server, whatever is said of `who`


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """How often a transaction was asked about, when it is asked next, why it is parked."""

    asked: int
    due: datetime
    parked: str | None
    remarks: tuple[Remark, ...] = ()


class Progress(StrEnum):
    """Where a transaction stands on the list of doubts."""

    WAITING = "waiting"  # for its next check
    ASKED = "asked"  # a member has a question about it
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtView:
    """A transaction on the list of doubts, as people see it."""

    txid: int
    id: str
    group: str
    key: str | None
    age: timedelta
    member: str | None  # who has a question about it
    checks: Checks

    @property
    def progress(self) -> Progress:
        """Where it stands."""
        if self.checks.parked is not None:
            return Progress.PARKED
        return Progress.WAITING if self.member is None else Progress.ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRound:
    """Who led the last round of a role, and how long ago it ended; nothing while one is under way."""

    leader: str
    ago: timedelta


ANSWERS = ("COMMIT", "ROLLBACK", "UNKNOWN", "NOBODY")
"""What came of checks; NOBODY was there to answer, and such a check does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is undecided of one producer group, who answers for it, and what was answered so far."""

    group: str
    undecided: int
    parked: int
    asked: int  # of them, by a question that is under way
    oldest: timedelta | None
    members: int
    answers: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchBacklog:
    """What is unfinished in one resource, and what stands against its decision there."""

    resource: str
    undecided: int  # branches whose transaction is not decided
    waiting: int  # branches whose transaction is decided and that were not told yet
    oldest: timedelta | None  # of those that wait
    heuristics: int
