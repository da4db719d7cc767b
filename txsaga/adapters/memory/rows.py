"""
The rows that the store in memory keeps, each one a frozen value.

`Kept` is what one ledger block may change. A block works on a copy that takes the place of the original
when it is left without an error; if rows were changed in place, a block that raises would leave its traces.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import NamedTuple

from txsaga.model.decision import Decision
from txsaga.model.records import Intent, LateSlot, Life, Row


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

    life: Life
    born: datetime
    touched: datetime


class Cursor(NamedTuple):
    """How far a consumer group has read a queue, and who owns it."""

    offset: int
    owner: str | None = None
    epoch: int = 0


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
    ops: dict[int, Op] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # decided transactions in the order of their decision
    lives: dict[int, Opened] = field(default_factory=dict)
    winners: dict[tuple[int, int], int] = field(default_factory=dict)
    slots: dict[int, tuple[LateSlot, ...]] = field(default_factory=dict)
    intents: dict[tuple[str, int], Intent] = field(default_factory=dict)
    cursors: dict[tuple[str, int], Cursor] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    scheduled: dict[int, datetime] = field(default_factory=dict)  # when messages for later are due

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
