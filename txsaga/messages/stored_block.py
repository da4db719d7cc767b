"""
The rows of one block in the store: a transaction record, or one half without a key, or nothing yet.

It writes and decides as the block's owner; the block controls when. Everything is added under the record's lock and
owner (R3, R4). The closing point is written with the last halves in ONE commit (R1): if that never runs, only the owner
can commit, and others roll back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import partial

from txsaga.core import facts
from txsaga.core.decision import NOT_SAFE, Decision, ReplyCode
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import DecisionOutcome, Doubt, End, Group, Half, LateSlot, Receipt, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import InvalidMessage, OutcomeUnknown, SendFailed, StoreUnavailable
from txsaga.lake.table import TABLE_EFFECT, Effect, TableWrite
from txsaga.messages.decide import DecidedBy
from txsaga.messages.tx_records import TxRecords

PART = 1
"""The part number of a block's contribution; its attempt is the owner."""


class StoredBlock:
    """The rows of one block."""

    def __init__(self, kernel: Kernel, group: Group, immunity: int | None, run: str | None = None) -> None:
        self._kernel, self._group, self._immunity, self._run = kernel, group, immunity, run
        self._evidence: int | None = None
        self.life: TxRecord | None = None
        self.receipt: Receipt | None = None
        self.bodies: Mapping[int, bytes] = {}  # late ones, by slot
        self.recorded: Sequence[Effect] = ()  # writes into tables
        self.changes: Sequence[TableWrite] = ()  # those that are stored with the closing point
        self._last: Sequence[Effect] = ()
        self.who: str | None = None  # for whom it decides, for the audit

    @property
    def txid(self) -> int | None:
        """The transaction's number, once it has one."""
        stored = self.life or self.receipt
        return None if stored is None else stored.txid

    @property
    def may_roll_back(self) -> bool:
        """Return whether the owner rolls something back; any other half is left to the check."""
        return self.life is not None or (self.receipt is not None and self.receipt.code in NOT_SAFE)

    def enter(self, key: str) -> None:
        """Join or open the record of a key; raise if the key is already committed."""
        self._hold(TxRecords(self._kernel).enter(self._group, key, self._run))

    def opened(self) -> TxRecord:
        """Return the record, opening one for a block without a key."""
        if self.life is None:
            self._refuse_immunity()
            return self._hold(TxRecords(self._kernel).open_unkeyed(self._group, self._run))
        return self.life

    def _refuse_immunity(self) -> None:
        if self._immunity is not None:
            raise InvalidMessage("immunity is for half messages; leave it out with offsets or late bodies")

    def _hold(self, life: TxRecord) -> TxRecord:
        """Let nobody else check the record while this block works."""
        self.life = life
        self._kernel.running.begin(self, Doubt.of(life))
        return life

    def add(self, life: TxRecord, rows: Sequence[Row]) -> None:
        """Add halves."""
        with self._kernel.announce.around(facts.Adding, life.txid), self._kernel.store.ledgers.open() as ledger:
            TxRecords(self._kernel).hold(ledger, life)
            ledger.add(life, PART, rows)

    def reserve(self, life: TxRecord, slot: LateSlot) -> None:
        """Reserve a slot for a late body."""
        with self._kernel.announce.around(facts.Reserving, life.txid), self._kernel.store.ledgers.open() as ledger:
            TxRecords(self._kernel).hold(ledger, life)
            ledger.reserve(slot)

    def close(self, rows: Sequence[Row], evidence: int | None) -> None:
        """Store the remaining halves and the closing point; `evidence` is the resource that will hold the evidence."""
        if self.life is None and rows and not self.changes:
            self.receipt = self._kernel.stores.call(Half(self._group.id, rows, evidence, self._immunity))
            if self.receipt.code is not ReplyCode.SEND_OK:
                why = f"the half was answered with {self.receipt.code}; no local work was begun"
                raise SendFailed(StoreUnavailable(why))
            if self._immunity is None:  # an immunity itself sets the time of its check
                self._kernel.running.begin(self, Doubt.of(self.receipt))
        else:
            run_blocking(partial(self._end, rows, evidence))
        self._evidence = evidence

    def leave(self) -> None:
        """End the work on it: from now on others may check it."""
        self._kernel.running.end(self)

    def doubt(self) -> Doubt:
        """Return the doubt that check-back would have about it."""
        return Doubt.of(self._stored, self._evidence)

    @property
    def _stored(self) -> TxRecord | Receipt:
        stored = self.life or self.receipt
        assert stored is not None
        return stored

    def decide(self, decision: Decision, why: str) -> DecisionOutcome:
        """Decide as the owner; return the final decision."""
        stored = self._stored
        if isinstance(stored, Receipt):
            return self._kernel.decides.call(End(stored.txid, stored.group, stored.token, decision))
        by = DecidedBy(who=self.who or f"owner {stored.owner}", why=why, owner=stored.owner)
        known = [*self.recorded, *self._last] if decision is Decision.COMMIT else ()
        decide = partial(self._kernel.decider.decide, stored.txid, decision, by, bodies=self.bodies, known=known)
        return run_blocking(decide)

    def _end(self, rows: Sequence[Row], evidence: int | None) -> None:
        """Store what is last; a record that nothing needed before is opened in the same commit."""
        records, life = TxRecords(self._kernel), self.life
        with self._kernel.announce.around(facts.Ending, *(() if life is None else (life.txid,))):
            try:
                with self._kernel.store.ledgers.open() as ledger:
                    if life is None:
                        self._refuse_immunity()
                        life = ledger.create(self._group.id, None, 1, self._run)
                        assert life is not None
                    else:
                        records.own(ledger, life)
                    if rows:
                        ledger.add(life, PART, rows)
                    self._last = [Effect(TABLE_EFFECT, PART, life.owner, each.payload()) for each in self.changes]
                    ledger.keep(life.txid, self._last)
                    ledger.win(life.txid, PART, life.owner)
                    ledger.move(life.txid, TxEvent.SEAL, evidence=evidence)
            except OutcomeUnknown:
                if life is None or not patiently(partial(records.has_ended, life)):
                    raise
        self._hold(life)


ENTER = "write `with producer.transaction(…) as tx:`"


class BlockStage(Enum):
    """The stage of a block."""

    NEW = auto()  # not entered yet
    ENTERING = auto()  # entering is under way: a second attempt is refused
    OPEN = auto()  # takes messages
    CLOSING = auto()  # closing is under way: other calls are refused
    BROKEN = auto()  # not all messages are stored: it can only roll back
    CLOSED = auto()  # closed, no local work was begun
    WORKING = auto()  # local work was begun: only its evidence shows whether it committed
    WORKED = auto()  # local work is committed
    LEFT = auto()  # nothing left to do
