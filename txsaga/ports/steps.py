"""Steps of transactions, and the sagas that somebody has to see to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from txsaga.errors import TxSagaError
from txsaga.model.checks import LEASE
from txsaga.model.decision import Decision
from txsaga.model.records import Life
from txsaga.model.saga import Claimed, Sagas, SagaView
from txsaga.model.step import Left, StepEvent, StepKind, StepRecord
from txsaga.ports.branches import Resolve


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


class Open(NamedTuple):
    """A transaction without a key, begun with its first steps; with a life it is one that has its number already."""

    group: int
    steps: Sequence[Start]
    run: str | None = None
    life: Life | None = None


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


class Record(NamedTuple):
    """Further steps of an open transaction, by its owner."""

    life: Life
    steps: Sequence[Start]
    marks: Marks = ()


class Settle(NamedTuple):
    """The owner's decision: with COMMIT come the steps behind it, with ROLLBACK its steps are to be compensated.

    `begun` are steps before it that were not written down yet; with `begin` nothing of the transaction was.
    """

    word: Resolve
    driver: str
    steps: Sequence[Start] = ()
    marks: Marks = ()
    begun: Sequence[Start] = ()
    begin: Open | None = None


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


Call = Open | Record | Mark | Settle | Rest | Close
Answer = Life | Decision | bool | None


class Steps(Protocol):
    """Writes steps down before they run, and remembers them until they are over."""

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
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

    def claim(self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None) -> Sequence[Claimed]:
        """Take over sagas whose driver is gone, in order: each has a new owner from here on.

        One is taken when its time is over, unless it is open and belongs to a run (R5); an open one also when something
        that it reserved has expired. What is stalled is left alone. Steps of one that is rolled back are to be
        compensated. Leases may be shorter by a third, so that what one process left does not come all at once.
        """

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Show that the owner, or driver, of these is alive: transactions with their owners."""

    def listed(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return, in order, the sagas that are not over, or one."""

    def counted(self) -> Sagas:
        """Count the sagas that are not over."""
