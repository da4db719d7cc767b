"""The ports of flows and sagas: branches and the decision that names them, steps, and flows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from txsaga.checkback.profile import LEASE
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Row, TxRecord
from txsaga.errors import TxSagaError
from txsaga.flows.branch import Branch, BranchEvent, BranchId, BranchState, Vote
from txsaga.flows.follow_up import FollowUp
from txsaga.flows.saga_values import ClaimedSaga, SagaFigures, SagaView
from txsaga.flows.step import Left, StepEvent, StepKind, StepRecord
from txsaga.flows.step_records import Amendment, Enrolled, FlowStep, FlowUnit, HeldLocks, Journalled, Overdue
from txsaga.resources.participant import EnlistedBranch

Place = tuple[int, int, int]
"""Transaction, number and attempt of a branch."""
NONE: Place = (0, 0, 0)
"""A place before the first branch."""


class BeginBranches(NamedTuple):
    """Begins a transaction without a key; its branches in these resources get numbers from 1 on, in attempt 1.

    With `life`, the transaction has its number already, but nothing of it is written yet.
    """

    group: int
    resources: Sequence[int]
    run: str | None = None
    life: TxRecord | None = None


VOTED = {Vote.PREPARED: BranchState.PREPARED, Vote.READ_ONLY: BranchState.COMMITTED}
"""The state that the decision gives to a branch, by its vote."""


class BranchVote(NamedTuple):
    """The vote of one attempt of a branch."""

    number: int
    attempt: int
    vote: Vote


class DecisionRequest(NamedTuple):
    """The owner's decision, with its half messages and the branches that voted.

    Without a decision it is the end (R1): the transaction is decided later, by the evidence in that resource. If
    nothing of it is written yet, the request names the resources of its branches as `BeginBranches` would.
    """

    life: TxRecord
    decision: Decision | None
    who: str
    why: str
    rows: Sequence[Row] = ()
    votes: Sequence[BranchVote] = ()
    evidence: int | None = None
    resources: Sequence[int] = ()


class Fence(NamedTuple):
    """Keeps a transaction of which nothing is written, and whose owner is gone, from being committed."""

    txid: int
    who: str
    why: str


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


Call = BeginBranches | DecisionRequest | Fence | BranchOutcome
Answer = TxRecord | Decision | bool | None
"""An open transaction's record; the final decision, None for an end; whether the branch was still waiting."""


class Joint(Protocol):
    """Decision requests of owners whose work is in the same branches: all are written, or none."""

    def say(self) -> None:
        """Send them, once, without waiting for an answer."""

    def commit(self) -> bool:
        """Write them in one commit; return whether it succeeded. If one can't be decided, none is written.

        `OutcomeUnknown` if the outcome can't be determined.
        """

    def recall(self) -> None:
        """Send the cancellation: none of them is written; `abandon` waits for it."""

    def abandon(self) -> None:
        """Make sure that none of them is written; after `commit` there is nothing to do."""


class BranchStore(Protocol):
    """Names branches before their work, and keeps them until they are finished."""

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Execute calls of every kind in ONE commit, each with its own answer.

        `DecisionRequest` answers `Superseded` if the transaction has another owner, and `EffectConflict` if something
        is bound to it that only the decider applies (late bodies, offsets, messages). `Fence` answers the final
        decision, None if the transaction was written meanwhile and is open; it fails while the owner's decision is
        being written.
        """

    def joint(self, words: Sequence[DecisionRequest]) -> Joint:
        """Prepare decision requests and a session for them: they are sent while the resources still vote.

        Each is a COMMIT of a transaction of which nothing is written yet.
        """

    def numbers(self, group: int, count: int) -> Sequence[TxRecord]:
        """Assign numbers to transactions of which nothing is written before their end; they may stay unused."""

    def of(self, txid: int) -> Sequence[Branch]:
        """Return every attempt of the branches of a transaction."""

    def written(self, txids: Collection[int]) -> Mapping[int, BranchesWritten]:
        """Return what is written of each of these transactions; those without a row are left out."""

    def over(self, places: Collection[Place]) -> Collection[Place]:
        """Return those whose resource has acknowledged the decision, with nothing left to settle by hand."""

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return, in order, branches whose transaction is decided and whose resource has not acknowledged it.

        With `older`, only those that have not changed for so long.
        """

    def listed(
        self,
        states: Collection[BranchState],
        *,
        resource: str | None = None,
        after: tuple[int, int, int] = NONE,
        limit: int = 1_000,
    ) -> Sequence[Branch]:
        """Return, in order, branches in one of these states, of one resource or of all."""

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, the transactions that voted yes here for another store, or for any.

        One that was decided by force stays listed until its coordinator decides the same, or it is forgotten.
        """


class Start(NamedTuple):
    """A step that is about to run. With an action it is after the point of no return.

    A step that can't be undone, and that no resource has to fence, may be written with the next call.
    """

    number: int
    name: str
    kind: StepKind
    resource: str | None = None
    input: str = "{}"
    compensation: str | None = None
    action: str | None = None
    expires: timedelta | None = None

    @property
    def may_wait(self) -> bool:
        """Return whether nothing would be left to do for it if its owner died."""
        return self.compensation is None and self.resource is None and self.expires is None


class OpenSaga(NamedTuple):
    """Begins a transaction without a key, with its first steps; with `life` it has its number already."""

    group: int
    steps: Sequence[Start]
    run: str | None = None
    life: TxRecord | None = None


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
    """The owner's decision: COMMIT comes with the steps after it, ROLLBACK has its steps compensated.

    `begun` are earlier steps that were not written yet; `begin` is set if nothing of the transaction was.
    """

    word: DecisionRequest
    driver: str
    steps: Sequence[Start] = ()
    marks: Marks = ()
    begun: Sequence[Start] = ()
    begin: OpenSaga | None = None


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


class Steps(Protocol):
    """Writes steps down before they run, and keeps them until they are finished."""

    def write(self, calls: Sequence[SagaCall]) -> Sequence[Answer | TxSagaError]:
        """Execute calls of every kind in ONE commit, each with its own answer: begins, steps, marks, then the rest.

        `OpenSaga` answers its record. `RecordStep` answers None; `DecidedOtherwise`, `Superseded` or
        `TransactionClosed` if the transaction is not open under its owner: then nothing may run. `Settle` answers the
        final decision, as `BranchStore.write` does. The others answer whether anything changed: a superseded driver
        changes nothing, and a step moves only by its lifecycle.
        """

    def of(self, txid: int) -> Sequence[StepRecord]:
        """Return the steps of a transaction, in the order of their start."""

    def of_all(self, txids: Sequence[int]) -> Mapping[int, Sequence[StepRecord]]:
        """Return the steps of many transactions in one query; those without steps are left out."""

    def claim(
        self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None
    ) -> Sequence[ClaimedSaga]:
        """Take over, in order, sagas whose driver is gone; each gets a new owner.

        A saga is claimed when its lease has run out, unless it is open and belongs to a run (R5); an open one also when
        something that it reserved has expired. Stalled ones are left alone. The steps of a rolled back one are to be
        compensated. Leases may be shorter by a third, so that the sagas of one process do not all expire at once.
        """

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Renew the leases of these transactions, given with their owners or drivers."""

    def listed(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return, in order, the unfinished sagas, or one."""

    def counted(self) -> SagaFigures:
        """Count the unfinished sagas."""


NamedBranch = tuple[int, int]
"""A branch by its number and attempt."""


class Entered(NamedTuple):
    """A flow with everything that an attempt of a step needs to know."""

    life: TxRecord
    standing: Decision | None
    amendment: Amendment | None
    enrolled: Sequence[Enrolled]
    steps: Sequence[FlowStep]


class FlowLedger(Protocol):
    """The rows of one locked flow inside one open database transaction."""

    def look(self, txid: int) -> Entered | None:
        """Return a flow as it is, without a lock."""

    def enter(self, txid: int) -> Entered | None:
        """Lock a flow as `Ledger.lock` does, and return it; if it is open, show that a process is at work in it."""

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Store what a flow may work in."""

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in, by name."""

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Store why a transaction record was begun, and what it amends; a repeated call overwrites it."""

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a transaction record was begun, if that is stored."""

    def steps(self, txid: int, name: str | None = None) -> Sequence[FlowStep]:
        """Return every attempt of every step, or of one, in order."""

    def start(self, txid: int, step: FlowStep) -> None:
        """Write a new attempt; the journal of the previous one is deleted."""

    def close(self, txid: int, step: FlowStep) -> None:
        """Write how an attempt ended."""

    def finish(self, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None) -> None:
        """Write together that an attempt is done, its journal, and the result of its declared step."""

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps, in the order of the steps."""

    def units(self, txid: int) -> Sequence[FlowUnit]:
        """Return the units of all lanes, and of main work that was run from the journal."""

    def put(self, txid: int, unit: FlowUnit) -> None:
        """Store the current state of a unit."""

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch, a new one or the one of that number; return its number."""

    def hold(self, txid: int, branch: NamedBranch, vote: Vote) -> None:
        """Record that the work of a branch is over, and its vote."""

    def settle(self, txid: int, branches: Sequence[NamedBranch], decision: Decision) -> None:
        """Decide branches on their own, independently of the flow; finished ones stay as they are."""

    def declare(self, txid: int, step: Start, attempt: int) -> None:
        """Write what undoes a step before an attempt of it runs: it is used after ROLLBACK.

        It replaces what an earlier attempt declared.
        """

    def mark(self, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        """Write what became of a declared step; it moves only by its lifecycle."""

    def let_stand(self, txid: int) -> None:
        """Have the steps of a flow left as they are: what they did stays."""

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner: from here on only the new owner ends the flow, and steps can't be added.

        After ROLLBACK, its steps are reserved for this owner for a time.
        """

    def do_home_work(self, txid: int) -> None:
        """Execute what is journalled for the home database, in this very transaction.

        `EffectConflict` if a statement fails, or changes another number of rows.
        """

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long; return False if that was noted before."""


class Flows(Protocol):
    """What undecided flows hold."""

    def held(self) -> Sequence[HeldLocks]:
        """Return what is held in each resource, by name."""

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget and were not reported yet."""


@runtime_checkable
class Journals(Protocol):
    """A participant that can execute journalled statements."""

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute statements in an open branch; `RowsDiffer`, or another no, if one can't be done as recorded."""


class FlowWaits(Protocol):
    """Watches one session of a step, from another thread."""

    def own_blocker(self) -> str | None:
        """Return the branch of its own transaction that the session waits for, directly or through other sessions."""

    def interrupt(self) -> None:
        """Cancel the statement in which the session waits."""

    def close(self) -> None:
        """Close what was opened for watching."""


@runtime_checkable
class Waiting(Protocol):
    """A participant in which a step may wait for what its own flow holds prepared."""

    def waits(self, session: EnlistedBranch, branch: BranchId, marks: Sequence[str]) -> FlowWaits:
        """Watch a session; `marks` are what `mark` returned for the work that the flow holds there."""

    def mark(self, session: EnlistedBranch) -> str:
        """Return the server's id for the work of this session, if the server does not know the branch by its name."""


class Followers(Protocol):
    """The followers of one host."""

    @property
    def name(self) -> str:
        """The name of the host; empty if it has none."""

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Notify them once; False if the run may still do it. `since`: none was notified before that moment."""
