"""Branches of coordinated transactions, and the decision that names them."""

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
"""Before the first branch."""


class BeginBranches(NamedTuple):
    """A transaction without a key, and the resources of its branches: number 1 on, in their first attempt.

    With a life it is one that has its number already, and of which nothing was written yet.
    """

    group: int
    resources: Sequence[int]
    run: str | None = None
    life: TxRecord | None = None


VOTED = {Vote.PREPARED: BranchState.PREPARED, Vote.READ_ONLY: BranchState.COMMITTED}
"""What the decision makes of a branch by its vote."""


class BranchVote(NamedTuple):
    """The vote of one attempt of a branch."""

    number: int
    attempt: int
    vote: Vote


class DecisionRequest(NamedTuple):
    """The owner's word: with it the halves that belong to it and the branches that voted.

    Without a decision it is the end (R1): whoever decides later does it by the evidence in that resource. Where
    nothing was written of the transaction yet, the word names the resources of its branches as `Begin` would.
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
    """A transaction of which nothing was written, and whose owner is gone: nobody can commit it from here on."""

    txid: int
    who: str
    why: str


class BranchOutcome(NamedTuple):
    """What became of one attempt of a branch in the second phase."""

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
"""An open life; the decision that stands, None for an end; whether the branch was still waiting."""


class Joint(Protocol):
    """Words of owners whose work is in the same branches: they stand together, or not at all."""

    def say(self) -> None:
        """Send them, once; nobody waits for an answer here."""

    def commit(self) -> bool:
        """Let them stand, in one commit; tell whether they do. Where one of them can't, nothing of any is written.

        `OutcomeUnknown` where nobody can tell.
        """

    def recall(self) -> None:
        """Send what lets nothing of them be written; `abandon` waits for it."""

    def abandon(self) -> None:
        """Let nothing of them be written; where `commit` was said there is nothing to do."""


class BranchStore(Protocol):
    """Names branches before their work, and remembers them until they are finished."""

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind in ONE commit, each with its own answer.

        `Resolve` answers `Superseded` when the transaction is not the owner's any more, and `EffectConflict` when
        something is bound to it that only the one way to decide applies (late bodies, offsets, messages). `Fence`
        answers what stands, None where the transaction was written down meanwhile and is open; it fails where a word of
        the owner's is under way.
        """

    def joint(self, words: Sequence[DecisionRequest]) -> Joint:
        """Have words ready, and a session for them: they are sent while those whom they are about are still asked.

        Each is a COMMIT of a transaction of which nothing was written yet.
        """

    def numbers(self, group: int, count: int) -> Sequence[TxRecord]:
        """Give out numbers for transactions of which nothing is written before their end; they may stay unused."""

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction, every attempt."""

    def written(self, txids: Collection[int]) -> Mapping[int, BranchesWritten]:
        """Return what is written of each of these transactions; where that is nothing it is left out."""

    def over(self, places: Collection[Place]) -> Collection[Place]:
        """Return those of which the resource has acknowledged the decision, and nothing is left to settle by hand."""

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return, in order, branches whose transaction is decided and whose resource has not acknowledged.

        Of `older` only those that have not moved for so long.
        """

    def listed(
        self,
        states: Collection[BranchState],
        *,
        resource: str | None = None,
        after: tuple[int, int, int] = NONE,
        limit: int = 1_000,
    ) -> Sequence[Branch]:
        """Return, in order, branches that stand in one of these states, of one resource or of all."""

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, what voted yes here for another store, or for any.

        What was decided by force stays listed until it is told the same, or forgotten.
        """


class Start(NamedTuple):
    """A step that is about to run. With an action it stands behind the point of no return.

    One that nothing can undo, and that no resource has to keep out, may be written down with what comes next.
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
        """Tell whether nobody would have to see to it if its owner died."""
        return self.compensation is None and self.resource is None and self.expires is None


class OpenSaga(NamedTuple):
    """A transaction without a key, begun with its first steps; with a life it is one that has its number already."""

    group: int
    steps: Sequence[Start]
    run: str | None = None
    life: TxRecord | None = None


class Mark(NamedTuple):
    """What became of a step; without an event only that it was tried, and why that failed."""

    txid: int
    owner: int
    number: int
    event: StepEvent | None
    left: Left | None = None
    output: str | None = None
    error: str = ""
    tries: int = 0


Marks = Sequence[Mark]
"""Those that come with another call are written behind its steps, before the rest; nobody hears what they changed."""


class RecordStep(NamedTuple):
    """Further steps of an open transaction, by its owner."""

    life: TxRecord
    steps: Sequence[Start]
    marks: Marks = ()


class Settle(NamedTuple):
    """The owner's decision: with COMMIT come the steps behind it, with ROLLBACK its steps are to be compensated.

    `begun` are steps before it that were not written down yet; with `begin` nothing of the transaction was.
    """

    word: DecisionRequest
    driver: str
    steps: Sequence[Start] = ()
    marks: Marks = ()
    begun: Sequence[Start] = ()
    begin: OpenSaga | None = None


class Rest(NamedTuple):
    """A saga that is let go of for a time, or until a person did something."""

    txid: int
    owner: int
    by: timedelta
    why: str
    stalled: bool = False
    marks: Marks = ()


class Close(NamedTuple):
    """The end of a saga, if nothing of it is left to do."""

    txid: int
    owner: int
    marks: Marks = ()


StepCall = OpenSaga | RecordStep | Mark | Settle | Rest | Close


class Steps(Protocol):
    """Writes steps down before they run, and remembers them until they are over."""

    def write(self, calls: Sequence[StepCall]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind in ONE commit, each with its own answer: begins, steps, marks, then the rest.

        `Open` answers its life. `Record` answers None; `DecidedOtherwise`, `Superseded` or `TransactionClosed` when the
        transaction is not open in its owner's hands: then nothing may run. `Settle` answers what stands, as
        `Branches.write` does its word. The others answer whether anything was changed: a superseded driver changes
        nothing, and no step moves but by its lifecycle.
        """

    def of(self, txid: int) -> Sequence[StepRecord]:
        """Return the steps of a transaction, in the order of their start."""

    def of_all(self, txids: Sequence[int]) -> Mapping[int, Sequence[StepRecord]]:
        """Return the steps of many transactions in one look; of one without steps there is nothing."""

    def claim(
        self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None
    ) -> Sequence[ClaimedSaga]:
        """Take over sagas whose driver is gone, in order: each has a new owner from here on.

        One is taken when its time is over, unless it is open and belongs to a run (R5); an open one also when something
        that it reserved has expired. What is stalled is left alone. Steps of one that is rolled back are to be
        compensated. Leases may be shorter by a third, so that what one process left does not come all at once.
        """

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Show that the owner, or driver, of these is alive: transactions with their owners."""

    def listed(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return, in order, the sagas that are not over, or one."""

    def counted(self) -> SagaFigures:
        """Count the sagas that are not over."""


Named = tuple[int, int]
"""A branch by its number and attempt."""


class Entered(NamedTuple):
    """A flow with all that an attempt of a step has to know of it."""

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
        """Lock a flow as `Ledger.lock` does, and return it; where it is open, show that somebody is at work in it."""

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Keep what a flow may work in."""

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in, by name."""

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Keep why a life was begun, and what it amends; said again, the last word counts."""

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a life was begun, where that was said."""

    def steps(self, txid: int, name: str | None = None) -> Sequence[FlowStep]:
        """Return every attempt of every step, or of one, in order."""

    def start(self, txid: int, step: FlowStep) -> None:
        """Write a new attempt down; what the one before it left in the journal goes."""

    def close(self, txid: int, step: FlowStep) -> None:
        """Write down how an attempt ended."""

    def finish(self, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None) -> None:
        """Write down that an attempt is done, what it leaves in the journal, and what was declared of it, at once."""

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps, in the order of the steps."""

    def units(self, txid: int) -> Sequence[FlowUnit]:
        """Return the units of all lanes, and of main work that was run from the journal."""

    def put(self, txid: int, unit: FlowUnit) -> None:
        """Keep a unit as it is now."""

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch, of a new one or of that number; return its number."""

    def hold(self, txid: int, branch: Named, vote: Vote) -> None:
        """Note that the work of a branch is over, and what it voted."""

    def settle(self, txid: int, branches: Sequence[Named], decision: Decision) -> None:
        """Decide branches by themselves, whatever becomes of the flow; what is over stays as it is."""

    def declare(self, txid: int, step: Start, attempt: int) -> None:
        """Write down what undoes a step, before an attempt of it runs: it is found once ROLLBACK stands.

        What an attempt before it said gives way.
        """

    def mark(self, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        """Write down what became of a step that was declared; nothing moves but by its lifecycle."""

    def let_stand(self, txid: int) -> None:
        """Have nobody see to the steps of a flow any more: what they did stays."""

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner: from here on only this one ends the flow, and steps can't be added.

        Once ROLLBACK stands, its steps are left to this owner for a time.
        """

    def do_home_work(self, txid: int) -> None:
        """Do what is journalled for the home database, in this very transaction.

        `EffectConflict` when a statement can't be done, or changes another number of rows.
        """

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long; False when that was noted."""


class Flows(Protocol):
    """What undecided flows hold."""

    def held(self) -> Sequence[HeldLocks]:
        """Tell what is held in each resource, by name."""

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget and were not told of."""


@runtime_checkable
class Journals(Protocol):
    """A participant in which journalled statements can be done."""

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Do statements in an open branch; `RowsDiffer`, or another no, where one can't be done as recorded."""


class FlowWaits(Protocol):
    """An eye on one session of a step, from another thread."""

    def own_blocker(self) -> str | None:
        """Return the branch of its own transaction that the session waits for, directly or behind others."""

    def interrupt(self) -> None:
        """Cancel what the session waits with."""

    def close(self) -> None:
        """Give back what was opened to look."""


@runtime_checkable
class Waiting(Protocol):
    """A participant in which a step may wait for what its own flow holds prepared."""

    def waits(self, session: EnlistedBranch, branch: BranchId, marks: Sequence[str]) -> FlowWaits:
        """Keep an eye on a session; `marks` are what `mark` said of what the flow holds there."""

    def mark(self, session: EnlistedBranch) -> str:
        """Return how the server calls what this session does, where it does not know the branch by its name."""


class Followers(Protocol):
    """The followers of one host."""

    @property
    def name(self) -> str:
        """The name of the host; none where it has none."""

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Tell them once; False where the run may still do it. `since`: nobody was told before that moment."""
