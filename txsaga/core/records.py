"""
What crosses the ports: halves to store, receipts, ends, standings, lives, log entries, positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from txsaga.core.decision import Decision, ReplyCode
from txsaga.core.lifecycle import TxState
from txsaga.errors import OutOfOrder

FRAMES = 1 << 20
"""Parts from here on are those of frames: of one each, and of one task each within it. A take-over drops them."""
NOBODY = 0
"""The producer group of what the store itself moves; it has no name."""


class Row(NamedTuple):
    """One stored chunk of a half: where it goes and its records."""

    qid: int
    chunk: int
    count: int  # type: ignore[assignment]  # nobody counts occurrences in a row
    body: bytes


class Due(NamedTuple):
    """When a message is to come: so long after it is stored, or at a moment. Only the store's clock counts."""

    delay: timedelta | None = None
    at: datetime | None = None


class Half(NamedTuple):
    """The halves of one transaction, to be stored in one statement."""

    group: int
    rows: Sequence[Row]
    evidence: int | None = None  # the resource that will hold the evidence of its local work
    immunity: int | None = None  # whole seconds before the first check
    plain: bool = False  # stored together with its COMMIT
    due: Due | None = None  # a plain message for later: stored without a decision, committed when it is due


class Receipt(NamedTuple):
    """A stored half: closed by its prepare, waiting for its decision."""

    txid: int
    group: int
    token: bytes
    code: ReplyCode = ReplyCode.SEND_OK

    def __repr__(self) -> str:
        """Show it without its token: whoever has that may decide."""
        return f"Receipt(txid={self.txid}, group={self.group}, token=..., code={self.code!r})"


class End(NamedTuple):
    """The request that decides a stored half."""

    txid: int
    group: int
    token: bytes
    decision: Decision
    from_check: bool = False
    recalls: bool = False  # a message for later


class DecisionOutcome(NamedTuple):
    """What stands after an end: the decision, and whether this end made it."""

    txid: int
    decision: Decision
    won: bool
    code: ReplyCode = ReplyCode.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class TxRecord:
    """A keyed or flow transaction in one of its lives (epochs)."""

    txid: int
    group: int
    token: bytes = field(repr=False)
    key: str | None
    epoch: int
    owner: int  # raised by each re-join: the fence within a life
    state: TxState
    evidence: int | None = None
    run: str | None = None  # the flow that it belongs to
    coordinator: UUID | None = None  # the store whose branch it is; its key is the branch's name
    lease: timedelta | None = None  # of a flow: in which somebody must be heard of; others are held while they run
    given: bytes = field(
        default=b"", compare=False, repr=False
    )  # shows that its number was given out, until it is written down

    @property
    def voted(self) -> bool:
        """Tell whether it is a branch that voted yes: only its coordinator decides it now (R15)."""
        return self.coordinator is not None and self.state is TxState.PREPARED


class Doubt(NamedTuple):
    """A transaction without a decision whose time has come to be asked about."""

    txid: int
    group: int
    token: bytes
    keyed: bool
    evidence: int | None
    born: datetime | None = None
    checks: int = 0
    age: timedelta = timedelta()
    run: str | None = None
    asked_last: str | None = None  # the member whose answer, or silence, is the last remark

    @classmethod
    def of(cls, stored: TxRecord | Receipt, evidence: int | None = None) -> Doubt:
        """Ask about a life or a plain half now; `evidence` is the resource that will hold it."""
        keyed = isinstance(stored, TxRecord)
        recorded = stored.evidence if isinstance(stored, TxRecord) and evidence is None else evidence
        run = stored.run if isinstance(stored, TxRecord) else None
        return cls(txid=stored.txid, group=stored.group, token=stored.token, keyed=keyed, evidence=recorded, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A producer group as the store knows it."""

    id: int
    name: str
    transactional: bool
    checks: Mapping[str, object] = field(default_factory=dict)  # what it says otherwise than the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredResource:
    """A registered database that holds evidence, pinned by that database's own uuid."""

    id: int
    name: str
    database: UUID
    enlisted: bool = field(default=False, compare=False)  # branches may be prepared in it


class LogEntry(NamedTuple):
    """One chunk as the log shows it: records `base` to `base + count` of a queue."""

    base: int
    count: int  # type: ignore[assignment]  # nobody counts occurrences in an entry
    txid: int
    part: int
    attempt: int
    chunk: int
    born: datetime
    body: bytes

    @property
    def behind(self) -> int:
        """The offset behind its last record."""
        return self.base + self.count


class Bounds(NamedTuple):
    """The first offset that is still there and the next one to come."""

    tail: int
    head: int


class ClaimedQueue(NamedTuple):
    """A queue in the hands of one member, with its fence."""

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
    """A half as the store shows it: under the system topic until it is committed."""

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
    """What one half holds, and where that is to go."""

    topic: str
    body: bytes


SCHEDULED = "scheduled"
"""How a message for later is listed while it waits; it is a half like any other."""


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


class TickResult(NamedTuple):
    """What a tick gave out."""

    tick: int
    chunks: int
    more: bool
    blocked: tuple[int, ...] = ()  # queues that it had to leave out


class EvidenceOutcome(NamedTuple):
    """What a resource's evidence says of a transaction."""

    committed: bool
    bodies: Mapping[int, bytes]  # late payloads by slot
