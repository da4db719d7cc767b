"""The hot path: batches of plain halves, plain messages and bare decisions."""

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
    """What became of a batch, each answer at the place of its item; an item that failed alone has its error."""

    receipts: Sequence[Receipt | TxSagaError]
    standings: Sequence[DecisionOutcome | TxSagaError]


class HalfStore(Protocol):
    """Stores and decides many transactions in one durable step.

    A batch that raises has stored nothing, and the store has made sure of that by reading back.
    """

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves in the order given, plain ones together with their COMMIT, and write decisions.

        One with `due` goes on the schedule, as it is; a ROLLBACK that `recalls` takes it off.

        A half is durable and invisible when this returns. Of decisions the first durable one stands. Refused
        (an error at its place, nothing changed): a half that is not there, that belongs to another
        group or a keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        ...

    def store(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store halves, plain or not."""
        return self.write(halves, ()).receipts

    def decide(self, ends: Sequence[End]) -> Sequence[DecisionOutcome | TxSagaError]:
        """Write decisions."""
        return self.write((), ends).standings

    def views(self, txid: int) -> Sequence[HalfView]:
        """Show the halves of a transaction as they lie; none for an unknown one."""

    def contents(self, txid: int) -> Sequence[Content]:
        """Read what a transaction would deliver: its halves, and of a keyed one the attempts that count."""

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Show the halves of several transactions."""
        return {txid: tuple(self.views(txid)) for txid in txids}


class Ledger(TableLedger, Protocol):
    """The rows of keyed transactions inside one open database transaction.

    A ledger never commits: leaving its `with` block does, and an exception rolls everything back.
    """

    @property
    def flows(self) -> FlowLedger:
        """The rows of flows in the same transaction."""

    def latest(self, group: int, key: str, *, before: int | None = None) -> TxRecord | None:
        """Return the newest life of a key, or the newest before an epoch, locked until the block ends."""

    def sees(self, group: int) -> bool:
        """Tell whether this login is shown the transactions of a group: what it does not find may be there."""

    def lock(self, txid: int) -> TxRecord | None:
        """Return a life, locked against everybody until the block ends."""

    def share(self, txid: int) -> TxRecord | None:
        """Return a life, locked against its decision until the block ends (R3)."""

    def create(
        self,
        group: int,
        key: str | None,
        epoch: int,
        run: str | None = None,
        coordinator: UUID | None = None,
        lease: timedelta | None = None,
    ) -> TxRecord | None:
        """Open a life with a new number; None when another opened that epoch first.

        With a coordinator it is a branch of that store's, and its key is the branch's name.
        With a lease it is a flow: it has no one owner, and waits so long for somebody to be heard of.
        """

    def release(self, txid: int) -> None:
        """Let a locked life be nobody's branch any more."""

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner of a locked, ACTIVE life and return it.

        What the owner before had bound or reserved, consumed offsets and places for late bodies, is dropped:
        that attempt does not count (R4).
        """

    def touch(self, txid: int) -> None:
        """Show that the owner of a locked life is alive: a doubt about it is dropped."""

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Move a life by its lifecycle table; `IllegalTransition` when the table forbids it."""

    def add(self, life: TxRecord, part: int, rows: Sequence[Row]) -> None:
        """Add halves under (part, the life's owner)."""

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Name the attempt of a part that counts (R4)."""

    def copy(self, txid: int, life: TxRecord) -> int:
        """Add what counts of another transaction's halves (R4) to a life, its owner winning their parts; count it."""

    def tie(self, txid: int, replay: int) -> bool:
        """Tie a transaction to the one that replays it, once and for all; False when another is tied to it."""

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""

    def name(self, life: TxRecord, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Name a branch for each resource, in this owner's attempt; return their numbers, the same in each attempt.

        A unit of an auxiliary lane gets a number of its own each time.
        """

    def elect(self, txid: int, votes: Sequence[BranchVote]) -> None:
        """Note what branches voted, in the block of the decision that names them."""

    def call(self, txid: int, ballot: Ballot) -> None:
        """Call a ballot on a locked life; the same once more changes nothing, another of its name is refused."""

    def cast(self, txid: int, ballot: str, cast: CastVote) -> bool:
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


class Registry(Protocol):
    """Topics, groups and resources by name."""

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are refused now."""

    def reject_transactions(self, rejecting: bool) -> None:
        """Switch halves off or on."""

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to, if it was ever told."""

    def join_cluster(self, name: str | None) -> None:
        """Say which cluster the store belongs to; None for none."""

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; the same again is no error, other settings are `TopicExists`."""

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Keep a topic's messages for another time or size; `UnknownTopic` for one that does not exist."""

    def topic(self, name: str) -> Topic:
        """Return a topic or raise `UnknownTopic`."""

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""

    def group(self, name: str, *, transactional: bool) -> Group:
        """Register a producer group; `GroupKindMismatch` when it is of the other kind."""

    def find_group(self, name: str) -> Group | None:
        """Return a registered producer group by name."""

    def group_by_id(self, id: int) -> Group:
        """Return a registered producer group."""

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Let a producer group say something otherwise than the engine; None takes a part back.

        `UnknownProducerGroup` for one that is not registered.
        """

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource under its database's uuid."""

    def enlist(self, id: int) -> None:
        """Note that branches may be prepared in a resource: recovery looks there from now on."""

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a registered resource."""

    def transactions(self, *, undecided: bool, limit: int) -> Sequence[TxView]:
        """List transactions, newest first."""

    def transaction(self, txid: int) -> TxView | None:
        """Show one transaction."""


class Schedule(Protocol):
    """Messages that wait for their time, by the store's clock."""

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` messages that are due; return how many left the schedule.

        The ticks behind it give them offsets, in each queue in the order in which they were due, whatever order they
        were sent in. The first decision stands: one that was decided already only leaves. Nought where nothing is due,
        or where a rival is at it.
        """
        ...
