"""Keyed and flow transactions: rows inside one open database transaction."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from txsaga.model.ballot import Ballot, Cast, Polled
from txsaga.model.claim import Claim
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxEvent
from txsaga.model.records import Intent, LateSlot, Life, Row
from txsaga.model.step import StepEvent
from txsaga.ports.branches import Voted
from txsaga.ports.flows import FlowLedger
from txsaga.ports.tables import TableLedger


class Ledger(TableLedger, Protocol):
    """The rows of keyed transactions inside one open database transaction.

    A ledger never commits: leaving its `with` block does, and an exception rolls everything back.
    """

    @property
    def flows(self) -> FlowLedger:
        """The rows of flows in the same transaction."""

    def latest(self, group: int, key: str, *, before: int | None = None) -> Life | None:
        """Return the newest life of a key, or the newest before an epoch, locked until the block ends."""

    def sees(self, group: int) -> bool:
        """Tell whether this login is shown the transactions of a group: what it does not find may be there."""

    def lock(self, txid: int) -> Life | None:
        """Return a life, locked against everybody until the block ends."""

    def share(self, txid: int) -> Life | None:
        """Return a life, locked against its decision until the block ends (R3)."""

    def create(
        self,
        group: int,
        key: str | None,
        epoch: int,
        run: str | None = None,
        coordinator: UUID | None = None,
        lease: timedelta | None = None,
    ) -> Life | None:
        """Open a life with a new number; None when another opened that epoch first.

        With a coordinator it is a branch of that store's, and its key is the branch's name.
        With a lease it is a flow: it has no one owner, and waits so long for somebody to be heard of.
        """

    def release(self, txid: int) -> None:
        """Let a locked life be nobody's branch any more."""

    def take_over(self, txid: int) -> Life:
        """Raise the owner of a locked, ACTIVE life and return it.

        What the owner before had bound or reserved, consumed offsets and places for late bodies, is dropped:
        that attempt does not count (R4).
        """

    def touch(self, txid: int) -> None:
        """Show that the owner of a locked life is alive: a doubt about it is dropped."""

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Move a life by its lifecycle table; `IllegalTransition` when the table forbids it."""

    def add(self, life: Life, part: int, rows: Sequence[Row]) -> None:
        """Add halves under (part, the life's owner)."""

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Name the attempt of a part that counts (R4)."""

    def copy(self, txid: int, life: Life) -> int:
        """Add what counts of another transaction's halves (R4) to a life, its owner winning their parts; count it."""

    def tie(self, txid: int, replay: int) -> bool:
        """Tie a transaction to the one that replays it, once and for all; False when another is tied to it."""

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""

    def name(self, life: Life, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Name a branch for each resource, in this owner's attempt; return their numbers, the same in each attempt.

        A unit of an auxiliary lane gets a number of its own each time.
        """

    def elect(self, txid: int, votes: Sequence[Voted]) -> None:
        """Note what branches voted, in the block of the decision that names them."""

    def call(self, txid: int, ballot: Ballot) -> None:
        """Call a ballot on a locked life; the same once more changes nothing, another of its name is refused."""

    def cast(self, txid: int, ballot: str, cast: Cast) -> bool:
        """Cast a vote on a locked life; False when that voter has voted."""

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction with their votes."""

    def forget(self, txid: int, number: int, attempt: int) -> bool:
        """Forget a branch that stands against its decision; tell whether it was such a one."""

    def compensates(self, txid: int) -> bool:
        """Tell whether something of a transaction that was rolled back is still to be undone (R6)."""

    def move_step(self, txid: int, number: int, event: StepEvent, why: str) -> bool:
        """Move a step by hand and let its saga go on at once; False when the table forbids it."""

    def reserve(self, slot: LateSlot) -> None:
        """Keep a place for a late body."""

    def slots(self, txid: int) -> Sequence[LateSlot]:
        """Return the places kept for late bodies."""

    def intend(self, intent: Intent, member: str) -> None:
        """Bind offsets of a claimed queue to a transaction; the last ones again is no error.

        `LeaseLost` when the claim is not the member's, or does not begin where the cursor stands.
        """

    def bind(self, txid: int, claim: Claim, retry: timedelta) -> None:
        """Make the open messages of a claim a transaction's: only its decision ends what is claimed of them.

        COMMIT takes them off their group; ROLLBACK lets them come again after `retry`, counted. `ClaimLost` when
        any of them is lost, and none is bound.
        """

    def apply_intents(self, txid: int, decision: Decision, *, why: str) -> None:
        """Move the cursors of a transaction's intents (COMMIT), end the intents and the claims bound to it.

        A message that comes again keeps in its history why it was rolled back.
        `EffectConflict` when a cursor does not stand where its intent starts.
        """

    def write_op(self, txid: int, decision: Decision, *, from_check: bool, keyed: bool = True) -> bool:
        """Write a decision and take the transaction off the list of doubts; False when another stands already.

        Plain halves too, where an audit row must be written with it; a keyed one is locked by then.
        """

    def due(self, txid: int) -> bool:
        """Tell whether a transaction is on the list of doubts and its time has come: nobody was heard of since."""

    def park(self, txid: int, why: str) -> None:
        """Ask about a transaction no more; it stays listed, with the reason."""

    def resume(self, txid: int) -> bool:
        """Ask about a parked transaction again, as if it had never been asked about; False when it is not parked."""

    def record(self, txid: int, event: str, *, who: str, why: str) -> None:
        """Write an audit row in the same transaction."""

    def standing(self, txid: int) -> Decision | None:
        """Return the decision that stands for any transaction, plain or keyed."""


class Ledgers(Protocol):
    """Opens ledgers."""

    def open(self) -> AbstractContextManager[Ledger]:
        """Open a database transaction; `OutcomeUnknown` when its COMMIT was not answered."""
