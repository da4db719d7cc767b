"""
The rows that the store in memory keeps, each one a frozen value.

`Kept` is what one ledger block may change. A block works on a copy that takes the place of the original
when it is left without an error; if rows were changed in place, a block that raises would leave its traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import NamedTuple

from txsaga.checkback.questions import Ask, Remark
from txsaga.consume.claim import Burial, Claim
from txsaga.consume.dead_letter import Copy
from txsaga.core.decision import Decision
from txsaga.core.records import Intent, LateSlot, Row, TxRecord
from txsaga.flows.ballot import Polled
from txsaga.flows.branch import BranchState
from txsaga.flows.journal import Journalled
from txsaga.flows.step import Amendment, Enrolled, Step, Unit
from txsaga.lake.table import Effect, TableName


class StoredHalf(NamedTuple):
    """One chunk of a half as it lies: never changed after it was stored."""

    txid: int
    part: int
    attempt: int
    group: int
    row: Row
    born: datetime
    keyed: bool = False
    evidence: int | None = None
    immunity: int | None = None

    @property
    def place(self) -> tuple[int, int, int, int, int]:
        """The key under which it can lie once only."""
        return self.txid, self.part, self.attempt, self.row.qid, self.row.chunk


class Op(NamedTuple):
    """A decision."""

    txid: int
    decision: Decision
    from_check: bool


class Opened(NamedTuple):
    """A keyed life, when it was opened and when it last moved."""

    life: TxRecord
    born: datetime
    touched: datetime


class BranchRow(NamedTuple):
    """One attempt of a branch: in which resource, and where it stands."""

    resource: int
    state: BranchState
    at: datetime
    why: str = ""
    aux: bool = False
    decision: Decision | None = None  # its own


class Listed(NamedTuple):
    """A place on the list of doubts: when to ask, the life as its owner left it, how often was asked, why no more."""

    due: datetime
    opened: Opened | None = None
    checks: int = 0
    parked: str | None = None
    remarks: tuple[Remark, ...] = ()
    resumed: datetime | None = None  # from then on its total time counts anew


class Put(NamedTuple):
    """A question that was put to a member, and until when it may answer once it took it up."""

    ask: Ask
    at: datetime
    until: datetime | None = None


class Cursor(NamedTuple):
    """How far a consumer group has read a queue, and who owns it."""

    offset: int
    owner: str | None = None
    epoch: int = 0


class SagaRow(NamedTuple):
    """A saga that is not over: until when it is its driver's, and why it does not go on."""

    until: datetime
    driver: str | None = None
    stalled: bool = False
    why: str = ""


Place = tuple[str, int, int, int]
"""Where a claim lies: group, queue, first offset and size."""


class ClaimRow(NamedTuple):
    """Messages of a queue that a group has handed out, or that wait to come again."""

    group: str
    qid: int
    base: int
    size: int
    open: int
    attempts: int
    until: datetime | None  # None while a transaction has it
    receipt: int | None = None
    member: str | None = None
    key: int | None = None
    txid: int | None = None
    retry: timedelta = timedelta()
    history: tuple[Mapping[str, object], ...] = ()
    copy: Copy | None = None

    @property
    def place(self) -> Place:
        """The key under which it lies."""
        return self.group, self.qid, self.base, self.size

    def is_due(self, now: datetime) -> bool:
        """Tell whether anybody may take it."""
        return self.until is not None and self.until <= now

    @property
    def is_new(self) -> bool:
        """Whether nobody has had it yet: it was put in line, or given back."""
        return self.receipt is None and not self.attempts and self.copy is None

    def is_held(self, now: datetime) -> bool:
        """Tell whether it is in a member's hands, or a transaction's."""
        return self.receipt is not None and not self.is_due(now)

    def is_held_by(self, claim: Claim, now: datetime) -> bool:
        """Tell whether it is in the hands that a claim speaks of."""
        return self.receipt == claim.receipt and self.until is not None and self.until > now

    def claimed(self) -> Claim:
        """Return what its member gets."""
        assert self.receipt is not None
        place, state = self.place, (self.open, self.attempts, self.receipt)
        return Claim(*place, *state, self.copy)


class Letter(NamedTuple):
    """A dead letter: the claim that it was, and why it was given up."""

    id: int
    at: datetime
    row: ClaimRow
    burial: Burial


class Audit(NamedTuple):
    """Who did what to a transaction, and why."""

    txid: int
    event: str
    who: str
    why: str
    at: datetime


@dataclass(slots=True)
class Kept:
    """Everything that a ledger block may change."""

    halves: dict[int, tuple[StoredHalf, ...]] = field(default_factory=dict)
    doubts: dict[int, Listed] = field(default_factory=dict)
    questions: dict[int, Put] = field(default_factory=dict)
    tally: dict[tuple[int, str], int] = field(default_factory=dict)
    ops: dict[int, Op] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # decided transactions in the order of their decision
    lives: dict[int, Opened] = field(default_factory=dict)
    branches: dict[tuple[int, int, int], BranchRow] = field(default_factory=dict)
    ballots: dict[tuple[int, str], Polled] = field(default_factory=dict)
    steps: dict[tuple[int, int, int], Step] = field(default_factory=dict)  # by number and attempt
    sagas: dict[int, SagaRow] = field(default_factory=dict)
    winners: dict[tuple[int, int], int] = field(default_factory=dict)
    slots: dict[int, tuple[LateSlot, ...]] = field(default_factory=dict)
    intents: dict[tuple[str, int], Intent] = field(default_factory=dict)
    replays: dict[int, int] = field(default_factory=dict)  # what was rolled back, and what replays it
    cursors: dict[tuple[str, int], Cursor] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    claims: dict[Place, ClaimRow] = field(default_factory=dict)
    letters: dict[int, Letter] = field(default_factory=dict)
    effects: dict[int, tuple[Effect, ...]] = field(default_factory=dict)
    pointers: dict[TableName, str] = field(default_factory=dict)
    table_intents: dict[tuple[TableName, str], int] = field(default_factory=dict)
    scheduled: dict[int, datetime] = field(default_factory=dict)  # when messages for later are due
    amendments: dict[int, Amendment] = field(default_factory=dict)
    enrolled: dict[int, tuple[Enrolled, ...]] = field(default_factory=dict)
    units: dict[tuple[int, str, int], Unit] = field(default_factory=dict)
    journal: dict[tuple[int, int, int], tuple[Journalled, ...]] = field(default_factory=dict)  # by number and attempt

    def copy(self) -> Kept:
        """Return a copy that can be changed without touching this one."""
        return Kept(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def lie(self, half: StoredHalf) -> None:
        """Put a half in its place."""
        self.halves[half.txid] = (*self.halves.get(half.txid, ()), half)

    def decide(self, op: Op) -> None:
        """Write a decision; the caller has made sure that it is the first."""
        self.ops[op.txid] = op
        self.order.append(op.txid)

    def unlist(self, txid: int) -> None:
        """Take a transaction off the list of doubts; what came of its checks goes to its history."""
        listed = self.doubts.pop(txid, None)
        for at, who, answer, why in listed.remarks if listed else ():
            self.audits.append(Audit(txid, f"CHECK {answer}", who, why, at))

    def is_bound(self, txid: int) -> bool:
        """Tell whether something hangs on a transaction's decision that is decided with it."""
        consumed = {each.txid for each in self.intents.values()} | {each.txid for each in self.claims.values()}
        if any(place[0] == txid for place in self.ballots):
            return True
        return txid in self.slots or txid in self.replays or txid in self.effects or txid in consumed

    def put(self, *rows: ClaimRow) -> None:
        """Put claims in their places; one without an open message is done."""
        for row in rows:
            self.claims[row.place] = row
            if not row.open:
                del self.claims[row.place]

    def letter_of(self, row: ClaimRow) -> Letter | None:
        """Return the dead letter of a message, if there is one."""
        found = (letter for letter in self.letters.values() if letter.row.place[:3] == row.place[:3])
        return next(found, None)

    def settle_order(self, start: int) -> None:
        """Put decisions of one commit, from `start` on, in the order of their numbers."""
        self.order[start:] = sorted(self.order[start:])

    def counts(self, half: StoredHalf) -> bool:
        """Tell whether a half is its transaction's: a plain one, or of the attempt that won its part (R4)."""
        return not half.keyed or self.winners.get((half.txid, half.part)) == half.attempt

    def deliverable(self, txid: int) -> list[StoredHalf]:
        """Return the halves that a COMMIT makes visible, in their order."""
        op = self.ops.get(txid)
        if op is None or op.decision is not Decision.COMMIT:
            return []
        winners = (half for half in self.halves.get(txid, ()) if self.counts(half))
        return sorted(winners, key=lambda half: (half.part, half.row.chunk))
