"""Branches of coordinated transactions, and the decision that names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from txsaga.errors import TxSagaError
from txsaga.model.branch import Branch, BranchEvent, BranchState
from txsaga.model.decision import Decision
from txsaga.model.records import Life, Row


class Begin(NamedTuple):
    """A transaction without a key and the branches that it will have, number 1 on, by their resources."""

    group: int
    resources: Sequence[int]
    run: str | None = None


class Resolve(NamedTuple):
    """The owner's decision: with COMMIT the halves that belong to it, and the branches that voted yes."""

    life: Life
    decision: Decision
    who: str
    why: str
    rows: Sequence[Row] = ()
    branches: Sequence[tuple[int, int]] = ()  # number, attempt


class Acknowledge(NamedTuple):
    """What became of one branch in the second phase."""

    txid: int
    number: int
    attempt: int
    event: BranchEvent
    why: str = ""


Call = Begin | Resolve | Acknowledge
Answered = Life | Decision | bool


class Branches(Protocol):
    """Names branches before their work, and remembers them until they are finished."""

    def write(self, calls: Sequence[Call]) -> Sequence[Answered | TxSagaError]:
        """Do calls of every kind in ONE commit.

        Begin answers with the open life. Resolve answers with the decision that stands now; `InDoubt` when the
        transaction has something that only the one way to decide applies (late bodies, bound offsets, ballots), and
        `Superseded` when it is not the owner's any more. Acknowledge tells whether the branch was still waiting.
        """

    def join(self, txid: int, resources: Sequence[int], attempt: int) -> None:
        """Name further branches of an open life, behind those that it has."""

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction."""

    def unfinished(
        self, *, resource: int | None = None, after: tuple[int, int] = (0, 0), limit: int = 1_000
    ) -> Sequence[Branch]:
        """Return branches whose transaction is decided and whose resource has not acknowledged, in order."""

    def listed(
        self, states: Sequence[BranchState], *, after: tuple[int, int, int] = (0, 0, 0), limit: int = 1_000
    ) -> Sequence[Branch]:
        """Return branches that stand in one of these states, in order."""

    def decisions(self, txids: Sequence[int]) -> dict[int, Decision]:
        """Return the decisions that stand about transactions."""
