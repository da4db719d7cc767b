"""
What stores take and return: half messages, receipts, ends, outcomes, records, log entries, positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from txsaga.core.decision import Decision, ReplyCode
from txsaga.core.lifecycle import TxState
from txsaga.errors import OutOfOrder, TxSagaError

FRAMES = 1 << 20
"""Parts from here on belong to frames: one per frame, one per task within it. A take-over drops them."""
NOBODY = 0
"""The producer group of messages that the store itself moves; it has no name."""


class Row(NamedTuple):
    """One stored chunk of a half message: its queue and its records."""

    qid: int
    chunk: int
    count: int  # type: ignore[assignment]  # `tuple.count` is not used on a row
    body: bytes


class Due(NamedTuple):
    """When a message is to be delivered: after a delay from storing, or at a moment. Only the store's clock counts."""

    delay: timedelta | None = None
    at: datetime | None = None


class Half(NamedTuple):
    """The half messages of one transaction, to be stored in one statement."""

    group: int
    rows: Sequence[Row]
    evidence: int | None = None  # the resource that will hold the evidence of its local work
    immunity: int | None = None  # whole seconds before the first check
    plain: bool = False  # stored together with its COMMIT
    due: Due | None = None  # a plain message for later: stored without a decision, committed when it is due


class Receipt(NamedTuple):
    """A stored half message: sealed by its prepare, waiting for its decision."""

    txid: int
    group: int
    token: bytes
    code: ReplyCode = ReplyCode.SEND_OK

    def __repr__(self) -> str:
        """Return it without its token: knowing the token is enough to decide."""
        return f"Receipt(txid={self.txid}, group={self.group}, token=..., code={self.code!r})"


class End(NamedTuple):
    """The request that decides a stored half message."""

    txid: int
    group: int
    token: bytes
    decision: Decision
    from_check: bool = False
    recalls: bool = False  # recalls a message for later


class DecisionOutcome(NamedTuple):
    """The decision after an end request, and whether this request made it."""

    txid: int
    decision: Decision
    won: bool
    code: ReplyCode = ReplyCode.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class TxRecord:
    """A keyed or flow transaction in one of its attempts (epochs)."""

    txid: int
    group: int
    token: bytes = field(repr=False)
    key: str | None
    epoch: int
    owner: int  # raised by each re-join: the fence within an epoch
    state: TxState
    evidence: int | None = None
    run: str | None = None  # the flow that it belongs to
    coordinator: UUID | None = None  # the store whose branch it is; its key is the branch's name
    lease: timedelta | None = None  # of a flow: a process must renew it in this time; others are held while they run

    @property
    def voted(self) -> bool:
        """Return whether it is a branch that voted yes: only its coordinator may decide it now (R15)."""
        return self.coordinator is not None and self.state is TxState.PREPARED


NO_WORK_OUTSIDE = 0
"""In the place of the resource with the evidence: only messages and rows of the store, so the owner alone decides."""


class Doubt(NamedTuple):
    """A transaction without a decision that is due for a check."""

    txid: int
    group: int
    token: bytes
    keyed: bool
    evidence: int | None
    born: datetime | None = None
    checks: int = 0
    age: timedelta = timedelta()
    run: str | None = None
    asked_last: str | None = None  # the member whose answer, or missing answer, is the last remark

    @classmethod
    def of(cls, stored: TxRecord | Receipt, evidence: int | None = None) -> Doubt:
        """Return the doubt of a transaction to check now; `evidence` is the resource of its evidence."""
        keyed = isinstance(stored, TxRecord)
        recorded = stored.evidence if isinstance(stored, TxRecord) and evidence is None else evidence
        run = stored.run if isinstance(stored, TxRecord) else None
        return cls(txid=stored.txid, group=stored.group, token=stored.token, keyed=keyed, evidence=recorded, run=run)


ProducerKind = Literal["any", "plain", "transactional"]
KINDS: Mapping[ProducerKind, bool | None] = {"any": None, "plain": False, "transactional": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A producer group as the store knows it."""

    id: int
    name: str
    transactional: bool | None  # whether its producers are RocketMQ's; None: of any kind
    checks: Mapping[str, object] = field(default_factory=dict)  # its settings that override the engine's

    @property
    def kind(self) -> ProducerKind:
        """Which producers it takes; transactional ones are RocketMQ's."""
        return next(kind for kind, stored in KINDS.items() if stored is self.transactional)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredResource:
    """A registered database that holds evidence, pinned by its own uuid."""

    id: int
    name: str
    database: UUID
    enlisted: bool = field(default=False, compare=False)  # branches may be prepared in it


class LogEntry(NamedTuple):
    """One chunk as the log shows it: records `base` to `base + count` of a queue."""

    base: int
    count: int  # type: ignore[assignment]  # `tuple.count` is not used on an entry
    txid: int
    part: int
    attempt: int
    chunk: int
    born: datetime
    body: bytes

    @property
    def behind(self) -> int:
        """The offset after its last record."""
        return self.base + self.count


class Bounds(NamedTuple):
    """The first offset that still exists and the next one to be assigned."""

    tail: int
    head: int


class ClaimedQueue(NamedTuple):
    """A queue claimed by one member, with its fence."""

    group: str
    qid: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Offsets that a transaction consumes: only its decision moves or frees them."""

    group: str
    qid: int
    start: int
    end: int
    epoch: int
    txid: int
    member: str = ""

    def __post_init__(self) -> None:
        """Refuse one that holds no message: it would move the cursor nowhere, or back."""
        if self.end <= self.start:
            raise OutOfOrder(f"offsets {self.start} to {self.end} of queue {self.qid} hold no message to consume")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSlot:
    """A place for a body that is known only in the local transaction."""

    txid: int
    slot: int
    qid: int
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str] | None = None
    ordering_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfView:
    """A half message as the store shows it: under the system topic until it is committed."""

    id: str
    topic: str
    queue: int
    real_topic: str
    real_queue: int
    group: str
    prepared: bool
    flag: str  # NOT, COMMIT or ROLLBACK
    count: int
    born: datetime


class Content(NamedTuple):
    """The content of one half message, and its destination."""

    topic: str
    body: bytes


LISTED = (*map(str, TxState), "scheduled")
"""The states that `txsaga tx list` shows; a message for later is a half message that is `scheduled`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxView:
    """A transaction as `txsaga tx` lists it."""

    txid: int
    id: str
    group: str
    key: str | None
    epoch: int | None
    state: str
    resource: str | None
    born: datetime
    decision: Decision | None
    from_check: bool
    due: datetime | None = None  # of a message for later, while it waits
    run: str | None = None  # the run of a DAG that it belongs to
    topics: tuple[str, ...] = ()  # to which it sends, by name


class TxFilter(NamedTuple):
    """Which transactions to list; what is None restricts nothing."""

    states: frozenset[str] | None = None
    group: str | None = None
    key: str | None = None
    topic: str | None = None
    since: datetime | None = None
    table: str | None = None  # that it writes: SCHEMA.TABLE
    run: str | None = None  # the flow that it belongs to: a run of a DAG
    problem: str | None = None  # heuristic: of a branch; stalled: of its saga
    before: int | None = None  # only older ones than this number, to read page by page


EVERY = TxFilter()


class TickResult(NamedTuple):
    """What a tick published."""

    tick: int
    chunks: int
    more: bool
    blocked: tuple[int, ...] = ()  # queues that it had to skip


class EvidenceOutcome(NamedTuple):
    """What a resource's evidence shows about a transaction."""

    committed: bool
    bodies: Mapping[int, bytes]  # late payloads by slot


class HalvesWritten(NamedTuple):
    """The answers to a batch, in the order of its items; an item that failed alone has its error."""

    receipts: Sequence[Receipt | TxSagaError]
    standings: Sequence[DecisionOutcome | TxSagaError]
