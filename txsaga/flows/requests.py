"""Requests about branches, steps and sagas, many in one commit of the store, and what the store answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from txsaga.core.decision import Decision
from txsaga.core.records import Row, TxRecord
from txsaga.flows.branch import Branch, BranchEvent, BranchState, Vote

if TYPE_CHECKING:
    from txsaga.core.lifecycle import TxState
    from txsaga.flows.step import Amendment, Enrolled, Left, Step, StepEvent, StepKind

Place = tuple[int, int, int]
"""Transaction, number and attempt of a branch."""
NONE: Place = (0, 0, 0)
"""A place before the first branch."""


VOTED = {Vote.PREPARED: BranchState.PREPARED, Vote.READ_ONLY: BranchState.COMMITTED}
"""The state that the decision gives to a branch, by its vote."""


class BranchVote(NamedTuple):
    """The vote of one attempt of a branch."""

    number: int
    attempt: int
    vote: Vote


class BranchOutcome(NamedTuple):
    """The outcome of one attempt of a branch in the second phase."""

    txid: int
    number: int
    attempt: int
    event: BranchEvent
    why: str = ""


class BranchesWritten(NamedTuple):
    """What the store knows of a transaction over several resources."""

    owner: int
    decision: Decision | None
    branches: Sequence[Branch]


class Guest(NamedTuple):
    """A transaction of this store that is a branch of another store's: it voted yes, or was decided by force."""

    txid: int
    gid: str
    coordinator: UUID
    state: TxState


class Start(NamedTuple):
    """A step that is about to run. With an action it is after the point of no return."""

    number: int
    name: str
    kind: StepKind
    resource: str | None = None
    input: str = "{}"
    compensation: str | None = None
    action: str | None = None
    expires: timedelta | None = None


class Begin(NamedTuple):
    """Begins a transaction without a key: its branches in these resources get numbers from 1 on, in attempt 1.

    With its first steps it is a saga.
    """

    group: int
    resources: Sequence[int] = ()
    steps: Sequence[Start] = ()
    run: str | None = None


class Mark(NamedTuple):
    """What became of a step; without an event, only that it was tried, and why that failed."""

    txid: int
    owner: int
    number: int
    event: StepEvent | None
    left: Left | None = None
    output: str | None = None
    error: str = ""
    tries: int = 0


Marks = Sequence[Mark]
"""Marks that come with another request are written after its steps, before the rest; they get no answer."""


class RecordSteps(NamedTuple):
    """Further steps of an open transaction, written by its owner."""

    life: TxRecord
    steps: Sequence[Start]
    marks: Marks = ()


class Decide(NamedTuple):
    """The owner's decision, with its half messages and the branches that voted.

    Without a decision it is the seal (R1): the transaction is decided later, by the evidence in that resource. A driver
    sees to the steps: COMMIT comes with the steps after it, ROLLBACK has the steps before it compensated.
    """

    life: TxRecord
    decision: Decision | None
    who: str
    why: str
    rows: Sequence[Row] = ()
    votes: Sequence[BranchVote] = ()
    evidence: int | None = None
    driver: str | None = None
    steps: Sequence[Start] = ()
    marks: Marks = ()


class Release(NamedTuple):
    """Releases a saga for a time, or until an operator acts."""

    txid: int
    owner: int
    by: timedelta
    why: str
    stalled: bool = False
    marks: Marks = ()


class Close(NamedTuple):
    """Ends a saga if nothing of it is left to do."""

    txid: int
    owner: int
    marks: Marks = ()


Request = Begin | RecordSteps | Mark | Decide | BranchOutcome | Release | Close
Answer = TxRecord | Decision | bool | None
"""An open transaction's record; the final decision, None for a seal and for steps; whether something was changed."""


class ClaimedSaga(NamedTuple):
    """A saga claimed by one driver; the previous driver is superseded."""

    txid: int
    group: int
    owner: int
    decision: Decision | None
    key: str | None

    @classmethod
    def of(cls, life: TxRecord, decision: Decision) -> ClaimedSaga:
        """Return a saga that its owner has decided, to be driven by it."""
        return cls(life.txid, life.group, life.owner, decision, life.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaView:
    """An unfinished saga, as `txsaga saga` lists it."""

    txid: int
    group: str
    key: str | None
    decision: Decision | None
    steps: int
    waiting: int  # unfinished steps
    driver: str | None
    until: datetime  # no other process claims it before
    stalled: bool  # an operator must resume or skip a step
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaFigures:
    """How many sagas are in which state."""

    running: int = 0  # undecided
    driving: int = 0  # decided, and being driven to their end
    waiting: int = 0  # for code, or for a resource
    stalled: int = 0  # for an operator


NamedBranch = tuple[int, int]
"""A branch by its number and attempt."""


class Entered(NamedTuple):
    """A flow with everything that an attempt of a step needs to know."""

    life: TxRecord
    standing: Decision | None
    amendment: Amendment | None
    enrolled: Sequence[Enrolled]
    steps: Sequence[Step]
