"""
What is durable about one transaction, read from a store at once. `steps_of` turns it into a timeline.

Nothing is decided by it. What has no recorded moment has none here; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import RegisteredResource
from txsaga.flows.branch import Branch
from txsaga.flows.step import Step, Unit
from txsaga.inspect.overview import Audited, Checks


class TracePlace(NamedTuple):
    """A queue, by topic name and index."""

    topic: str
    queue: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue}"


class SentMessages(NamedTuple):
    """The half messages of one attempt of a part in one queue."""

    part: int
    attempt: int
    place: TracePlace
    messages: int
    born: datetime  # of the first of them
    counts: bool  # plain, or of the winning attempt (R4)
    timed: bool  # in a topic for delayed messages


class LateBodySlot(NamedTuple):
    """A slot that is reserved for a late body."""

    slot: int
    place: TracePlace


class WrittenTable(NamedTuple):
    """Rows that one attempt of a part staged for a table."""

    part: int
    attempt: int
    name: str
    mode: str
    rows: int
    counts: bool  # of the winning attempt (R4)


class ConsumedOffsets(NamedTuple):
    """Offsets of a consumer group that only this transaction's decision moves; `last` is included."""

    group: str
    member: str
    place: TracePlace
    first: int
    last: int


class AssignedOffsets(NamedTuple):
    """Offsets that a tick assigned; `last` is included."""

    place: TracePlace
    first: int
    last: int
    at: datetime


class KeyedRecord(NamedTuple):
    """The row of a keyed transaction."""

    key: str | None
    epoch: int
    owner: int
    state: TxState
    opened: datetime
    touched: datetime
    flow: bool = False  # it has no single owner until it is closed


class RecordedDecision(NamedTuple):
    """A decision; it has no moment of its own."""

    decision: Decision
    from_check: bool
    before: datetime | None  # a tick had seen it by then


class Amended(NamedTuple):
    """The transaction that amends this one, and when it was committed."""

    txid: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything durable about one transaction."""

    txid: int
    group: int
    life: KeyedRecord | None = None
    resource: RegisteredResource | None = None  # with the evidence of its local work
    sent: tuple[SentMessages, ...] = ()
    kept: tuple[LateBodySlot, ...] = ()
    written: tuple[WrittenTable, ...] = ()
    bound: tuple[ConsumedOffsets, ...] = ()
    due: datetime | None = None  # of a delayed message, while it waits
    listed: Checks | None = None  # on the list of doubts
    audits: tuple[Audited, ...] = ()
    op: RecordedDecision | None = None
    given: tuple[AssignedOffsets, ...] = ()
    branches: tuple[Branch, ...] = ()
    steps: tuple[Step, ...] = ()  # every attempt
    units: tuple[Unit, ...] = ()
    replays: int | None = None
    replayed_as: int | None = None
    amends: int | None = None
    amended_as: Amended | None = None

    @property
    def decision(self) -> Decision | None:
        """The decision; None while there is none."""
        return None if self.op is None else self.op.decision
