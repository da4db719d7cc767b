"""What is asked of the store about branches, steps and sagas, many calls in one commit, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from txsaga.core.decision import Decision
from txsaga.core.records import Row, TxRecord
from txsaga.flows.branch import Branch, BranchEvent, BranchState, Vote

if TYPE_CHECKING:
    from txsaga.core.lifecycle import TxState
    from txsaga.flows.step import Left, StepEvent, StepKind
    from txsaga.flows.step_records import Amendment, Enrolled, FlowStep

Place = tuple[int, int, int]
"""Transaction, number and attempt of a branch."""
NONE: Place = (0, 0, 0)
"""A place before the first branch."""


class BeginBranches(NamedTuple):
    """Begins a transaction without a key; its branches in these resources get numbers from 1 on, in attempt 1."""

    group: int
    resources: Sequence[int]
    run: str | None = None


VOTED = {Vote.PREPARED: BranchState.PREPARED, Vote.READ_ONLY: BranchState.COMMITTED}
"""The state that the decision gives to a branch, by its vote."""


class BranchVote(NamedTuple):
    """The vote of one attempt of a branch."""

    number: int
    attempt: int
    vote: Vote


class DecisionRequest(NamedTuple):
    """The owner's decision, with its half messages and the branches that voted.

    Without a decision it is the end (R1): the transaction is decided later, by the evidence in that resource.
    """

    life: TxRecord
    decision: Decision | None
    who: str
    why: str
    rows: Sequence[Row] = ()
    votes: Sequence[BranchVote] = ()
    evidence: int | None = None


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


Call = BeginBranches | DecisionRequest | BranchOutcome
Answer = TxRecord | Decision | bool | None
"""An open transaction's record; the final decision, None for an end; whether the branch was still waiting."""


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


class OpenSaga(NamedTuple):
    """Begins a transaction without a key, with its first steps."""

    group: int
    steps: Sequence[Start]
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
"""Marks that come with another call are written after its steps, before the rest; they get no answer."""


class RecordStep(NamedTuple):
    """Further steps of an open transaction, written by its owner."""

    life: TxRecord
    steps: Sequence[Start]
    marks: Marks = ()


class Settle(NamedTuple):
    """The owner's decision: COMMIT comes with the steps after it, ROLLBACK has its steps compensated."""

    word: DecisionRequest
    driver: str
    steps: Sequence[Start] = ()
    marks: Marks = ()


class ReleaseSaga(NamedTuple):
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


SagaCall = OpenSaga | RecordStep | Mark | Settle | ReleaseSaga | Close


NamedBranch = tuple[int, int]
"""A branch by its number and attempt."""


class Entered(NamedTuple):
    """A flow with everything that an attempt of a step needs to know."""

    life: TxRecord
    standing: Decision | None
    amendment: Amendment | None
    enrolled: Sequence[Enrolled]
    steps: Sequence[FlowStep]
