"""Branches of coordinated transactions, and the decision that names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from txsaga.errors import TxSagaError
from txsaga.model.branch import Branch, BranchEvent, BranchState, Vote
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Life, Row

Place = tuple[int, int, int]
"""Transaction, number and attempt of a branch."""
NONE: Place = (0, 0, 0)
"""Before the first branch."""


class Begin(NamedTuple):
    """A transaction without a key, and the resources of its branches: number 1 on, in their first attempt.

    With a life it is one that has its number already, and of which nothing was written yet.
    """

    group: int
    resources: Sequence[int]
    run: str | None = None
    life: Life | None = None


VOTED = {Vote.PREPARED: BranchState.PREPARED, Vote.READ_ONLY: BranchState.COMMITTED}
"""What the decision makes of a branch by its vote."""


class Voted(NamedTuple):
    """The vote of one attempt of a branch."""

    number: int
    attempt: int
    vote: Vote


class Resolve(NamedTuple):
    """The owner's word: with it the halves that belong to it and the branches that voted.

    Without a decision it is the end (R1): whoever decides later does it by the evidence in that resource. Where
    nothing was written of the transaction yet, the word names the resources of its branches as `Begin` would.
    """

    life: Life
    decision: Decision | None
    who: str
    why: str
    rows: Sequence[Row] = ()
    votes: Sequence[Voted] = ()
    evidence: int | None = None
    resources: Sequence[int] = ()


class Fence(NamedTuple):
    """A transaction of which nothing was written, and whose owner is gone: nobody can commit it from here on."""

    txid: int
    who: str
    why: str


class Noted(NamedTuple):
    """What became of one attempt of a branch in the second phase."""

    txid: int
    number: int
    attempt: int
    event: BranchEvent
    why: str = ""


class Written(NamedTuple):
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


Call = Begin | Resolve | Fence | Noted
Answer = Life | Decision | bool | None
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


class Branches(Protocol):
    """Names branches before their work, and remembers them until they are finished."""

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind in ONE commit, each with its own answer.

        `Resolve` answers `Superseded` when the transaction is not the owner's any more, and `EffectConflict` when
        something is bound to it that only the one way to decide applies (late bodies, offsets, messages). `Fence`
        answers what stands, None where the transaction was written down meanwhile and is open; it fails where a word of
        the owner's is under way.
        """

    def joint(self, words: Sequence[Resolve]) -> Joint:
        """Have words ready, and a session for them: they are sent while those whom they are about are still asked.

        Each is a COMMIT of a transaction of which nothing was written yet.
        """

    def numbers(self, group: int, count: int) -> Sequence[Life]:
        """Give out numbers for transactions of which nothing is written before their end; they may stay unused."""

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction, every attempt."""

    def written(self, txids: Collection[int]) -> Mapping[int, Written]:
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
