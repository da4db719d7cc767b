"""Ports of the message store: the hot path, ledgers, registry and schedule."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from txsaga.consume.claim import Claim
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import (
    Content,
    DecisionOutcome,
    End,
    Group,
    Half,
    HalfView,
    Intent,
    LateSlot,
    Receipt,
    RegisteredResource,
    Row,
    TxRecord,
    TxView,
)
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import TxSagaError
from txsaga.flows.ballot import Ballot, CastVote, Polled
from txsaga.flows.ports import BranchVote, FlowLedger
from txsaga.flows.step import StepEvent
from txsaga.lake.ports import TableLedger


class HalvesWritten(NamedTuple):
    """The answers to a batch, in the order of its items; an item that failed alone has its error."""

    receipts: Sequence[Receipt | TxSagaError]
    standings: Sequence[DecisionOutcome | TxSagaError]


class HalfStore(Protocol):
    """Stores and decides many transactions in one durable step.

    If a batch raises, nothing was stored; the store has verified that by reading back.
    """

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves in the given order, plain ones together with their COMMIT, and write decisions.

        A half with `due` goes on the schedule, undecided; a ROLLBACK that `recalls` removes it.

        A half is durable and invisible when this returns. The first durable decision is final. Refused (an error in
        its position, nothing changed): an end of a half that does not exist or that belongs to another group or a
        keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        ...

    def store(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store halves, plain or not."""
        return self.write(halves, ()).receipts

    def decide(self, ends: Sequence[End]) -> Sequence[DecisionOutcome | TxSagaError]:
        """Write decisions."""
        return self.write((), ends).standings

    def views(self, txid: int) -> Sequence[HalfView]:
        """Return the stored halves of a transaction; none for an unknown one."""

    def contents(self, txid: int) -> Sequence[Content]:
        """Return what a transaction would deliver: its halves; for a keyed one, those of the attempts that count."""

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Return the stored halves of several transactions."""
        return {txid: tuple(self.views(txid)) for txid in txids}


class Ledger(TableLedger, Protocol):
    """The rows of keyed transactions inside one open database transaction.

    A ledger never commits by itself: the end of its `with` block commits, and an exception rolls everything back.
    """

    @property
    def flows(self) -> FlowLedger:
        """The rows of flows in the same transaction."""

    def latest(self, group: int, key: str, *, before: int | None = None) -> TxRecord | None:
        """Return the newest record of a key, or the newest before an epoch, locked until the block ends."""

    def sees(self, group: int) -> bool:
        """Return whether this login sees the transactions of a group; if not, one it does not find may exist."""

    def lock(self, txid: int) -> TxRecord | None:
        """Return a record, locked exclusively until the block ends."""

    def share(self, txid: int) -> TxRecord | None:
        """Return a record, locked against its decision until the block ends (R3)."""

    def create(
        self,
        group: int,
        key: str | None,
        epoch: int,
        run: str | None = None,
        coordinator: UUID | None = None,
        lease: timedelta | None = None,
    ) -> TxRecord | None:
        """Open a record with a new number; None if another process opened that epoch first.

        With a coordinator it is a branch of that store's transaction, and its key is the branch's name. With a lease it
        is a flow: it has no single owner, and stays open that long without a sign of life from any process.
        """

    def release(self, txid: int) -> None:
        """Detach a locked branch from its coordinator."""

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner number of a locked, ACTIVE record and return the record.

        Consumed offsets and late-body slots of the previous owner are dropped: that attempt does not count (R4).
        """

    def touch(self, txid: int) -> None:
        """Record that the owner of a locked record is alive, which removes it from the doubts."""

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Change the state of a record; `IllegalTransition` if the lifecycle table forbids it."""

    def add(self, life: TxRecord, part: int, rows: Sequence[Row]) -> None:
        """Add halves under (part, the record's owner)."""

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Record which attempt of a part counts (R4)."""

    def copy(self, txid: int, life: TxRecord) -> int:
        """Copy another transaction's counting halves (R4) to a record whose owner wins their parts; return how many."""

    def tie(self, txid: int, replay: int) -> bool:
        """Link a transaction to its replay, permanently; False if it is already linked to another."""

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""

    def name(self, life: TxRecord, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Record a branch for each resource, in this owner's attempt; return their numbers, the same in each attempt.

        A unit of an auxiliary lane gets a new number each time.
        """

    def elect(self, txid: int, votes: Sequence[BranchVote]) -> None:
        """Record what branches voted, in the ledger block of the decision that names them."""

    def call(self, txid: int, ballot: Ballot) -> None:
        """Open a ballot on a locked record; repeating it changes nothing, a different one of its name is refused."""

    def cast(self, txid: int, ballot: str, cast: CastVote) -> bool:
        """Cast a vote on a locked record; False if that voter already voted."""

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction and their votes."""

    def forget(self, txid: int, number: int, attempt: int) -> bool:
        """Delete a branch whose outcome contradicts its decision; return whether it was one."""

    def compensates(self, txid: int) -> bool:
        """Return whether a rolled back transaction still has something to undo (R6)."""

    def move_step(self, txid: int, number: int, event: StepEvent, why: str) -> bool:
        """Change the state of a step by hand and let its saga continue at once; False if the table forbids it."""

    def reserve(self, slot: LateSlot) -> None:
        """Reserve a slot for a late body."""

    def slots(self, txid: int) -> Sequence[LateSlot]:
        """Return the slots reserved for late bodies."""

    def intend(self, intent: Intent, member: str) -> None:
        """Bind offsets of a claimed queue to a transaction; repeating the last ones is not an error.

        `LeaseLost` if the claim is not the member's, or does not start at the cursor's offset.
        """

    def bind(self, txid: int, claim: Claim, retry: timedelta) -> None:
        """Bind the open messages of a claim to a transaction: only its decision ends the claim on them.

        COMMIT acknowledges them for their group; ROLLBACK redelivers them after `retry`, counted as an attempt. If
        any of them is lost, raise `ClaimLost` and bind none.
        """

    def apply_intents(self, txid: int, decision: Decision, *, why: str) -> None:
        """Move the cursors of a transaction's intents (on COMMIT), end its intents and the claims bound to it.

        A redelivered message keeps the reason of the rollback in its history.
        `EffectConflict` if a cursor is not at the start of its intent.
        """

    def write_op(self, txid: int, decision: Decision, *, from_check: bool, keyed: bool = True) -> bool:
        """Write a decision and remove the transaction from the list of doubts; False if it is already decided.

        Also for plain halves, if an audit row must be written with it; a keyed transaction must be locked.
        """

    def due(self, txid: int) -> bool:
        """Return whether a transaction is on the list of doubts and due for a check: no owner was active since."""

    def park(self, txid: int, why: str) -> None:
        """Stop checking a transaction; it stays listed, with the reason."""

    def resume(self, txid: int) -> bool:
        """Check a parked transaction again, with its checks counted from 0; False if it is not parked."""

    def record(self, txid: int, event: str, *, who: str, why: str) -> None:
        """Write an audit row in the same transaction."""

    def standing(self, txid: int) -> Decision | None:
        """Return the final decision of any transaction, plain or keyed."""


class Ledgers(Protocol):
    """Opens ledgers."""

    def open(self) -> AbstractContextManager[Ledger]:
        """Open a database transaction; `OutcomeUnknown` if its COMMIT was not answered."""


class Registry(Protocol):
    """Topics, groups and resources by name."""

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are currently refused."""

    def reject_transactions(self, rejecting: bool) -> None:
        """Refuse or accept halves from now on."""

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to, if one is set."""

    def join_cluster(self, name: str | None) -> None:
        """Set the cluster that the store belongs to; None for none."""

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; repeating it is not an error, other settings raise `TopicExists`."""

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Change a topic's retention time or size; `UnknownTopic` if it does not exist."""

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise `UnknownTopic`."""

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""

    def group(self, name: str, *, transactional: bool) -> Group:
        """Register a producer group; `GroupKindMismatch` if it exists with the other kind."""

    def find_group(self, name: str) -> Group | None:
        """Return a registered producer group by name."""

    def group_by_id(self, id: int) -> Group:
        """Return a registered producer group."""

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Override check-back settings for a producer group; None removes an override.

        `UnknownProducerGroup` if it is not registered.
        """

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource under its database's uuid."""

    def enlist(self, id: int) -> None:
        """Record that branches may be prepared in a resource: recovery scans it from now on."""

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a registered resource."""

    def transactions(self, *, undecided: bool, limit: int) -> Sequence[TxView]:
        """List transactions, newest first."""

    def transaction(self, txid: int) -> TxView | None:
        """Return one transaction."""


class Schedule(Protocol):
    """Delayed messages, by the store's clock."""

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` due messages; return how many left the schedule.

        Later ticks assign their offsets, in each queue in due order, whatever order they were sent in. The first
        decision is final: an already decided message only leaves the schedule. Return 0 if nothing is due, or if
        another process is doing it.
        """
        ...
