"""
What people look at: how much is undecided, how far groups have read, what was done to a transaction and by whom.

Nothing decides by these figures; they may be a moment old.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Transactions that nobody has decided yet."""

    count: int
    parked: int
    oldest: timedelta | None
    scheduled: int = 0
    """Messages for later are counted by themselves: nobody needs to decide them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How far a consumer group has read a topic."""

    group: str
    topic: str
    lag: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The last tick, its age, and how many committed transactions wait for the next one."""

    tick: int
    age: timedelta
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """Who did what to a transaction, when and why."""

    at: datetime
    what: str
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """How often a transaction was asked about, when it is asked next, why it is parked."""

    asked: int
    due: datetime
    parked: str | None
