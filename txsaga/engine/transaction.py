"""
The transaction block: halves first, local work once and last, then one decision.

    with producer.transaction(key="order-42") as tx:
        tx.send("orders", b"…")
        with tx.local("billing") as connection:
            …

Entering `local` (or calling `prepare`) writes the remaining halves and the end in ONE commit of the home
database: from there on others may finish the transaction by its evidence (R1). Without a key nothing is
stored before that point.

Leaving the block:
    no exception                 COMMIT; after a failed or swallowed `local`, what the evidence says
    exception before the end     ROLLBACK (nothing is stored without a key)
    exception after `local`      what the evidence says; no evidence = barrier, then ROLLBACK
    exception after `prepare`    undecided: only the checker knows what became of the work
    messages were not stored     ROLLBACK, also if that error was swallowed: the rest alone is never committed
If the process dies anywhere in between, check-back settles it by the same rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from txsaga.engine.decide import By
from txsaga.engine.half import as_message, checked_half
from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.outbox import Outbox
from txsaga.errors import (
    DecidedOtherwise,
    InDoubt,
    InvalidMessage,
    OutcomeUnknown,
    SendFailed,
    StoreUnavailable,
    TransactionClosed,
    TransactionError,
)
from txsaga.model import facts
from txsaga.model.decision import NOT_SAFE, Code, Decision
from txsaga.model.layout import Batch
from txsaga.model.message import Message, validate
from txsaga.model.records import Doubt, End, Group, Half, LateSlot, Life, Receipt, Standing
from txsaga.model.topic import Way
from txsaga.ports.evidence import Evidence

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


class Consumed(Protocol):
    """A stream whose cursors can be bound to a transaction."""

    def bind(self, transaction: Transaction, batch: Batch) -> None:
        """Bind the cursor behind a chunk."""


logger = logging.getLogger("txsaga")

MAX_BUFFER = 64 * 1024 * 1024
FLUSH = 8 * 1024 * 1024
PART = 1
"""A block is one contribution; its attempt is the owner."""


class Slot:
    """A place for a body that is known only in the local transaction."""

    def __init__(self, transaction: Transaction, slot: LateSlot) -> None:
        self._transaction, self._slot = transaction, slot

    def fill(self, connection: Connection, body: bytes) -> None:
        """Store the body beside the evidence, in the local transaction."""
        self._transaction._fill(connection, self._slot, body)


class Transaction:
    """One transaction of a producer, as a context manager."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, immunity: int | None) -> None:
        self._kernel, self._group, self._key, self._immunity = kernel, group, key, immunity
        self._lives = Lives(kernel)
        self._outbox = Outbox(kernel.topics, Way.HALF)
        self._life: Life | None = None
        self._receipt: Receipt | None = None
        self._closed = False
        self._broken = False  # what was sent is not all in the store
        self._evidence: Evidence | None = None
        self._evidence_id: int | None = None
        self._local_done = False
        self._bodies: dict[int, bytes] = {}
        self._slots = 0
        self._listeners: list[Callable[[Decision], None]] = []
        self.decision: Decision | None = None

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""
        stored = self._life or self._receipt
        return None if stored is None else stored.txid

    @property
    def id(self) -> str | None:
        """The id that names store and transaction, once there is one."""
        return None if self.txid is None else self._kernel.store.registry.identity.transaction(self.txid)

    def __enter__(self) -> Self:
        """Open the transaction; with a key, join or refuse what the key already did."""
        if self._key is not None:
            self._life = self._lives.enter(self._group, self._key)
        return self

    def send(self, topic: str | Message, body: bytes = b"", **options: object) -> None:
        """Add a message to the transaction."""
        message = checked_half(as_message(topic, body, options))
        self._require_open("send")
        self._outbox.add(message)
        self._flush_or_refuse()

    def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Add many messages of one topic as columns."""
        self._require_open("send")
        self._outbox.add_many(topic, bodies, keys, tags)
        self._flush_or_refuse()

    def later(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> Slot:
        """Keep a place for a message whose body is known only in `local`."""
        self._require_open("keep a slot")
        shape = Message(topic, b"", key=key, tag=tag, headers=headers, ordering_key=ordering_key)
        validate(shape)
        qid = self._kernel.topics.queue_for(shape, Way.HALF)
        life = self._opened()
        self._slots += 1
        slot = LateSlot(
            txid=life.txid,
            slot=self._slots,
            qid=qid,
            key=key,
            tag=tag,
            headers=headers,
            ordering_key=ordering_key,
        )
        with (
            self._kernel.announce.around(facts.Reserving, facts.Reserved, life.txid),
            self._kernel.store.ledgers.open() as ledger,
        ):
            self._lives.hold(ledger, life)
            ledger.reserve(slot)
        return Slot(self, slot)

    @contextmanager
    def local(self, resource: str | Engine) -> Iterator[Connection]:
        """Close the transaction and run local work that carries its own evidence."""
        recorded, evidence = self._kernel.resource(resource)
        self._close(recorded.id)
        self._evidence = evidence
        assert self.id is not None and self.txid is not None
        try:
            with evidence.work(self.id, self._announce_work) as connection:
                yield connection
                self._require_filled()
        except OutcomeUnknown:
            if not self._evidence_says_committed(evidence, self.id):
                raise
        self._local_done = True

    def prepare(self) -> None:
        """Close the transaction before local work that is no SQL; the checker answers for it later."""
        self._close(None)

    def consume(self, stream: Consumed, batch: Batch) -> None:
        """Let this transaction's decision move a stream's cursor behind a chunk that it read."""
        stream.bind(self, batch)

    def join_life(self) -> Life:
        """Open the transaction's row (for what needs one, like consumed offsets) and return it."""
        self._require_open("consume")
        return self._opened()

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Tell somebody the decision."""
        self._listeners.append(listener)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide."""
        if self.decision is not None:
            return
        if not self._closed:
            self._leave_open(error)
        elif self._evidence is not None and not self._local_done:
            self._follow_evidence(error)
        elif self._evidence is None and error is not None:
            logger.warning("transaction %s stays undecided: %s; its checker will be asked", self.txid, error)
        else:
            self._decide(Decision.COMMIT, "the block ended")

    def _leave_open(self, error: BaseException | None) -> None:
        if error is not None or self._broken:
            if self._life is not None:
                why = "its messages were not stored" if error is None else f"the block raised {type(error).__name__}"
                self._decide(Decision.ROLLBACK, why)
            if error is None:
                raise TransactionError("the transaction was rolled back: its messages could not all be stored")
        elif self._life is not None or self._outbox.count:
            self._close(None)
            self._decide(Decision.COMMIT, "the block ended")

    def _follow_evidence(self, error: BaseException | None) -> None:
        standing = self._kernel.settler.settle(self._doubt())
        if standing is None:
            logger.warning("transaction %s stays undecided: its evidence can't be read now", self.txid)
            if error is None:
                raise InDoubt(f"transaction {self.txid} is undecided: its evidence can't be read now")
            return
        self._told(standing.decision)
        if error is None and standing.decision is Decision.ROLLBACK:
            raise TransactionError(f"transaction {self.txid} was rolled back: its local work did not commit")

    def _decide(self, decision: Decision, why: str) -> None:
        standing = self._standing(decision, why)
        self._told(standing.decision)
        if standing.decision is not decision:
            raise DecidedOtherwise(standing.txid, standing.decision.name)

    def _standing(self, decision: Decision, why: str) -> Standing:
        stored = self._life or self._receipt
        assert stored is not None
        self._kernel.tell_hooks(self._group, stored.txid, stored.token, decision, why)
        if self._life is not None:
            by = By(who=f"owner {self._life.owner}", why=why, owner=self._life.owner)
            return self._kernel.decider.decide(self._life.txid, decision, by, bodies=self._bodies)
        assert self._receipt is not None
        receipt = self._receipt
        return self._kernel.decides.call(End(receipt.txid, receipt.group, receipt.token, decision))

    def _told(self, decision: Decision) -> None:
        self.decision = decision
        for listener in self._listeners:
            listener(decision)
        self._kernel.on_decided()

    def _close(self, evidence: int | None) -> None:
        self._require_open("begin local work")
        with self._all_or_broken():
            if self._life is None and self._outbox.count:
                half = Half(self._group.id, self._outbox.take(), evidence, self._immunity)
                self._receipt = self._kernel.stores.call(half)
                self._require_confirmed(self._receipt)
            else:
                self._end(self._opened(), evidence)
        self._evidence_id = evidence
        self._closed = True

    def _require_confirmed(self, receipt: Receipt) -> None:
        """Let no local work begin behind a half that the store does not vouch for."""
        if receipt.code is Code.SEND_OK:
            return
        if receipt.code in NOT_SAFE:
            self._decide(Decision.ROLLBACK, f"the half was stored with {receipt.code}")
        raise SendFailed(StoreUnavailable(f"the half was answered with {receipt.code}; no local work was begun"))

    def _end(self, life: Life, evidence: int | None) -> None:
        with self._kernel.announce.around(facts.Ending, facts.Ended, life.txid):
            try:
                self._write_end(life, evidence)
            except OutcomeUnknown:
                if not self._lives.has_ended(life):
                    raise

    def _write_end(self, life: Life, evidence: int | None) -> None:
        with self._kernel.store.ledgers.open() as ledger:
            self._lives.own(ledger, life)
            rows = self._outbox.take()
            if rows:
                ledger.add(life, PART, rows)
            ledger.win(life.txid, PART, life.owner)
            self._lives.end(ledger, life, evidence)

    @contextmanager
    def _all_or_broken(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _flush_or_refuse(self) -> None:
        if self._life is not None:
            if self._outbox.bytes > FLUSH:
                self._flush(self._life)
        elif self._outbox.bytes > MAX_BUFFER:
            raise InvalidMessage(
                f"a transaction without a key holds at most {MAX_BUFFER:,} bytes before it is stored, this one "
                f"has {self._outbox.bytes:,}; pass key=… to store as you send"
            )

    def _flush(self, life: Life) -> None:
        rows = self._outbox.take()
        with (
            self._all_or_broken(),
            self._kernel.announce.around(facts.Adding, facts.Added, life.txid),
            self._kernel.store.ledgers.open() as ledger,
        ):
            self._lives.hold(ledger, life)
            ledger.add(life, PART, rows)

    def _opened(self) -> Life:
        if self._life is None:
            self._life = self._lives.open_unkeyed(self._group)
        return self._life

    def _fill(self, connection: Connection, slot: LateSlot, body: bytes) -> None:
        if self._evidence is None or self._local_done or self.id is None:
            raise TransactionError("a late slot is filled inside tx.local(…), with its connection")
        self._evidence.fill(connection, self.id, slot.slot, body)
        self._bodies[slot.slot] = body

    def _require_filled(self) -> None:
        # Before the local commit: behind it the work would stand and its messages would roll back.
        missing = sorted(set(range(1, self._slots + 1)) - set(self._bodies))
        if missing:
            raise TransactionError(
                f"late slots {missing} of transaction {self.txid} were kept and not filled; nothing was done"
            )

    def _announce_work(self, done: bool) -> None:
        if self._kernel.announce and self.txid is not None:
            self._kernel.announce((facts.Worked if done else facts.Working)((self.txid,)))

    def _evidence_says_committed(self, evidence: Evidence, id: str) -> bool:
        outcome = evidence.read(id) or evidence.fence(id)
        return outcome is not None and outcome.committed

    def _doubt(self) -> Doubt:
        if self._life is not None:
            return self._lives.doubt(self._life, self._evidence_id)
        assert self._receipt is not None
        return self._lives.doubt_of_half(self._receipt, self._evidence_id)

    def _require_open(self, what: str) -> None:
        if self._closed or self.decision is not None:
            raise TransactionClosed(
                f"transaction {self.txid} is closed, it can't {what}: local work comes once and last"
            )
        if self._broken:
            raise TransactionError("messages of this transaction could not be stored; leave the block, it rolls back")
