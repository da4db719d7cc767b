"""
What is durable of one transaction, as a store finds it in one look. `steps` tells it as a timeline.

Nothing decides by it. What a store keeps no moment of has none here; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from txsaga.checkback.questions import Remark
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import RegisteredResource
from txsaga.flows.branch import Branch
from txsaga.flows.step import StepRecord
from txsaga.flows.step_records import FlowStep, FlowUnit
from txsaga.inspect.overview import Audited


class TracePlace(NamedTuple):
    """A queue by the name of its topic."""

    topic: str
    queue: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue}"


class SentMessages(NamedTuple):
    """The halves of one attempt of a part in one queue."""

    part: int
    attempt: int
    place: TracePlace
    messages: int
    born: datetime  # the first of them
    counts: bool  # a plain half, or of the attempt that won (R4)
    timed: bool  # it lies in a topic for messages that come later


class KeptEvidence(NamedTuple):
    """A place that is kept for a late body."""

    slot: int
    place: TracePlace


class ConsumedOffsets(NamedTuple):
    """Offsets of a consumer group that only this transaction's decision moves, the last one included."""

    group: str
    member: str
    place: TracePlace
    first: int
    last: int


class Listed(NamedTuple):
    """A place on the list of doubts."""

    checks: int
    due: datetime
    parked: str | None
    remarks: tuple[Remark, ...] = ()


class Given(NamedTuple):
    """Offsets that a tick gave out, the last one included."""

    place: TracePlace
    first: int
    last: int
    at: datetime


class Life(NamedTuple):
    """A keyed transaction as its row has it."""

    key: str | None
    epoch: int
    owner: int
    state: TxState
    opened: datetime
    touched: datetime
    flow: bool = False  # it has no one owner until it is ended


class Op(NamedTuple):
    """A decision; of itself it has no moment."""

    decision: Decision
    from_check: bool
    before: datetime | None  # a tick had seen it then


class Amended(NamedTuple):
    """The transaction that amends this one, and when it was committed."""

    txid: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything durable of one transaction."""

    txid: int
    group: int
    life: Life | None = None
    resource: RegisteredResource | None = None  # that holds the evidence of its local work
    sent: tuple[SentMessages, ...] = ()
    kept: tuple[KeptEvidence, ...] = ()
    bound: tuple[ConsumedOffsets, ...] = ()
    due: datetime | None = None  # of a message for later, while it waits
    listed: Listed | None = None
    audits: tuple[Audited, ...] = ()
    op: Op | None = None
    given: tuple[Given, ...] = ()
    branches: tuple[Branch, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    flow_steps: tuple[FlowStep, ...] = ()
    flow_units: tuple[FlowUnit, ...] = ()
    replays: int | None = None
    replayed_as: int | None = None
    amends: int | None = None
    amended_as: Amended | None = None

    @property
    def decision(self) -> Decision | None:
        """The decision, once it stands."""
        return None if self.op is None else self.op.decision
