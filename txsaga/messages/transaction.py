"""
The transaction block: halves first, local work once and last, then one decision.

    with producer.transaction(key="order-42") as tx:
        tx.send("orders", b"…")
        with tx.local("billing") as connection:
            …

Entering `local` (or calling `prepare`) writes the remaining halves and the closing point in ONE commit of the
home database: from then on others may finish the transaction by its evidence (R1). Without a key nothing is
stored before that point. A block is used once; its `BlockStage` only moves forward.

Leaving the block:
    no exception                 COMMIT; after a failed or swallowed `local`, as the evidence shows
    exception before closing     ROLLBACK (nothing is stored without a key)
    exception after `local`      as the evidence shows; no evidence = barrier, then ROLLBACK
    exception after `prepare`    undecided: only the checker knows the outcome of the work
    messages were not stored     ROLLBACK, also if that error was swallowed: the others alone are never committed
A user's exception always propagates out of the block. A forked child that exits the block by an exception decides
nothing: the block is its parent's. If the process dies anywhere in between, check-back settles it by the same rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from txsaga import errors
from txsaga.aio.block import AsyncBlock, AsyncContext, InLoop
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.decision import Decision, LocalState
from txsaga.core.failure import on_failure, report_failure
from txsaga.core.fibers import Loops, raise_if_cancelled, run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.message import Message, SlotOptions
from txsaga.core.records import NO_WORK_OUTSIDE, Group, Row, TxRecord
from txsaga.core.topic import SendKind
from txsaga.core.validation import validate_late
from txsaga.evidence.late_bodies import Filling, LateBodies, Slot
from txsaga.evidence.ports import Evidence
from txsaga.lake.gates import Gate
from txsaga.lake.table import TableWrite
from txsaga.lake.table_writes import HomeTable, Table, TableWrites
from txsaga.messages.stored_block import ENTER, PART, BlockStage, StoredBlock

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class AsyncSlot:
    """A slot for a body that is known only in the local transaction."""

    def __init__(self, slot: Slot, in_loop: Loops) -> None:
        self._slot, self._in_loop = slot, in_loop

    async def fill(self, connection: AsyncConnection, body: bytes) -> None:
        """Store the body with the evidence, in the local transaction."""
        await self._in_loop(partial(self._slot.fill, connection, body))  # type: ignore[arg-type]  # compared with the block's connection


class AsyncTransaction(AsyncBlock["Transaction"]):
    """One transaction of a producer, in an event loop."""

    async def later(self, topic: str, **options: Unpack[SlotOptions]) -> AsyncSlot:
        """Reserve a slot for a message whose body is known only in `local`."""
        kept = partial(self._block.later, topic, **options)
        return AsyncSlot(await self._alone(lambda: run_blocking(kept)), self._in_loop)

    def local(self, resource: str | AsyncEngine) -> AsyncContext[AsyncConnection]:
        """Close the transaction and run local work that carries its own evidence."""
        return AsyncContext(self._block.local(resource), self._in_loop, self._one)  # type: ignore[arg-type]  # an async resource gives an async connection

    async def prepare(self) -> None:
        """Close the transaction before local work that is not SQL; the checker answers for it later."""
        await self._alone(self._block.prepare)


logger = logging.getLogger("txsaga")


class Transaction(InLoop[AsyncTransaction]):
    """One transaction of a producer, as a context manager."""

    _looping = AsyncTransaction

    def __init__(
        self, kernel: Kernel, group: Group, *, key: str | None, immunity: int | None, run: str | None = None
    ) -> None:
        super().__init__(kernel, group, key)
        self._contribution = StoredBlock(kernel, group, immunity, run)
        self._late = LateBodies()
        self._contribution.bodies = self._late.bodies
        self._tables = TableWrites(kernel, PART, self._life_for)
        self._contribution.recorded = self._tables.recorded

    @property
    def txid(self) -> int | None:
        """The transaction's number, once it has one."""
        return self._contribution.txid

    def __enter__(self) -> Self:
        """Open the transaction; with a key, join its record or raise if it is already committed."""
        self._require_new()
        if self._key is not None:
            key, self._stage = self._key, BlockStage.ENTERING
            with on_failure(setattr, self, "_stage", BlockStage.NEW):
                run_blocking(lambda: self._contribution.enter(key))
        self._stage = BlockStage.OPEN
        return self

    def later(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> Slot:
        """Reserve a slot for a message whose body is known only in `local`."""
        self._require_open("keep a slot")
        shape, qid = self._kernel.topics.admit(Message(topic, b"", key, tag, headers, ordering_key), SendKind.HALF)
        validate_late(shape)
        life = self._contribution.opened()
        stored, slot = self._late.keep(life.txid, qid, shape)
        self._contribution.reserve(life, stored)
        return slot

    def table(self, name: str) -> Table:
        """Return a table of the home catalog; its writes become visible with the decision."""
        self._require_open("write to a table")
        return self._tables.table(name)

    def token(self) -> str:
        """Return the token by which Iceberg clients join: what they commit becomes visible with the decision."""
        self._require_open("be joined")
        return self._tables.token()

    def change(self, writes: Sequence[TableWrite], who: str) -> None:
        """Change tables as an Iceberg client asks; the audit names it."""
        self._require_open("write to a table")
        self._contribution.changes, self._contribution.who = [*self._contribution.changes, *writes], who

    def rows(self, table: str) -> HomeTable:
        """Return a table of the home database; the decision moves the staged rows into it."""
        self._require_open("write rows")
        return self._tables.rows(table)

    def check(self, about: str, rows: object, gate: Gate) -> None:
        """Have a gate check rows or messages of this transaction; `NotCarried` if it rejects them."""
        self._require_open("check rows")
        self._tables.check(about, rows, gate)

    @contextmanager
    def local(self, resource: str | Engine) -> Iterator[Connection]:
        """Close the transaction and run local work that carries its own evidence."""
        self._require_open("begin local work")
        if self._tables.may_conflict:
            raise errors.ConfigError(
                "a transaction can't commit local work and then be refused by a table that it creates or overwrites, "
                'by rows or by a gate; use producer.coordinated("…"), or only append to tables'
            )
        recorded, evidence = self._kernel.resource(resource)
        if self._looped is not None:
            evidence = evidence.in_loop()
        self._close(recorded.id)
        self._stage = BlockStage.WORKING
        raise_if_cancelled()
        id = self.id
        assert id is not None
        with self._work(evidence, id) as connection:
            yield connection
        self._stage = BlockStage.WORKED

    @contextmanager
    def _work(self, evidence: Evidence, transaction: str) -> Iterator[Connection]:
        """Run local work with its evidence and late bodies; if it ends without an error, it is committed.

        An error at its COMMIT means unknown, so the evidence is read before the caller gets an answer.
        """
        complete = False
        try:
            with evidence.work(transaction, self._announce) as connection:
                with self._late.filled_in(Filling(evidence, transaction, connection)):
                    yield connection
                complete = True
        except errors.OutcomeUnknown:
            if not complete or not self._has_committed():
                raise

    def _announce(self, done: bool) -> None:
        if self._kernel.announce and self._contribution.txid is not None:
            self._kernel.announce((facts.Worked if done else facts.Working)((self._contribution.txid,)))

    def _has_committed(self) -> bool:
        try:
            case = DoubtContext(self._kernel.store, self._contribution.doubt())
            return run_blocking(lambda: self._kernel.settler.judge.know(case)).state is LocalState.COMMIT
        except errors.TxSagaError:
            return False  # the outcome stays unknown

    def prepare(self) -> None:
        """Close the transaction before local work that is not SQL; the checker answers for it later."""
        self._require_open("begin local work")
        if not self._kernel.checkers.knows(self._group.name):
            raise errors.CheckerMissing(self._group.name)
        self._close(None)

    def join_life(self) -> TxRecord:
        """Open and return the transaction's record, for example for consumed offsets."""
        return self._life_for("consume")

    def _life_for(self, what: str) -> TxRecord:
        self._require_open(what)
        return self._contribution.opened()

    def _release(self) -> None:
        self._contribution.leave()

    def _require_open(self, what: str) -> None:
        self._heed_overflow()
        super()._require_open(what)

    def _heed_overflow(self) -> None:
        """Break a block that refused a message for lack of room, even if that error was swallowed."""
        if self._outbox.overflowed and self._stage is BlockStage.OPEN:
            self._stage = BlockStage.BROKEN

    def _leave(self, error: BaseException | None) -> None:
        self._heed_overflow()
        match self._stage:
            case BlockStage.NEW:
                raise errors.TransactionError(f"this block was not entered; {ENTER}")
            case BlockStage.OPEN if error is None:
                self._finish()
            case BlockStage.OPEN | BlockStage.BROKEN:
                self._give_up(error)
            case BlockStage.CLOSED if error is not None:
                self._stage = BlockStage.LEFT
                logger.warning("transaction %s stays undecided: %s; check-back asks its checker", self.txid, error)
            case BlockStage.CLOSED | BlockStage.WORKED:
                self._decide(Decision.COMMIT, "the block ended")
            case BlockStage.WORKING:
                self._follow_evidence(error)

    def _finish(self) -> None:
        if self.txid is None and not (self._outbox.count or self._contribution.changes):
            self._stage = BlockStage.LEFT  # nothing was sent: nothing is decided
            return
        with report_failure(self._try_to_give_up):
            self._close(NO_WORK_OUTSIDE)
        try:
            self._decide(Decision.COMMIT, "the block ended")
        except errors.EffectConflict as conflict:  # nothing was done outside: both decisions are possible
            with suppress(errors.TxSagaError):
                self._decide(Decision.ROLLBACK, short_cause(str(conflict)))
            raise

    def _try_to_give_up(self, error: BaseException) -> None:
        with suppress(errors.TxSagaError):  # if this fails, others find it open and roll it back
            self._give_up(error)

    def _give_up(self, error: BaseException | None) -> None:
        unstored = self._stage is BlockStage.OPEN and self.txid is None
        self._stage = BlockStage.BROKEN  # nothing is added any more, even if the rollback fails now
        if self._contribution.may_roll_back:
            why = (
                "its messages were not stored"
                if error is None
                else short_cause(f"the block raised {type(error).__name__}: {error}")
            )
            self._decide(Decision.ROLLBACK, why)
        elif unstored:
            self._told(Decision.ROLLBACK)
        self._stage = BlockStage.LEFT
        if error is None:
            raise errors.TransactionError("the transaction did not commit: its messages could not all be stored")

    def _follow_evidence(self, error: BaseException | None) -> None:
        checked = run_blocking(lambda: self._kernel.settler.check(self._contribution.doubt()))
        if checked.standing is None:
            raise errors.InDoubt(f"transaction {self.txid} is undecided: {checked.why}; check-back settles it")
        self._told(checked.standing.decision)
        if error is not None and self.decision is Decision.COMMIT:
            error.add_note(
                f"transaction {self.txid} is COMMITTED all the same: its local work was committed before this"
            )
        if error is None and self.decision is Decision.ROLLBACK:
            raise errors.TransactionError(f"transaction {self.txid} was rolled back: its local work did not commit")

    def _decide(self, decision: Decision, why: str) -> None:
        standing = self._contribution.decide(decision, why)
        self._told(standing.decision)
        if standing.decision is not decision:
            raise errors.DecidedOtherwise(standing.txid, standing.decision.name)

    def _told(self, decision: Decision) -> None:
        self.decision, self._stage = decision, BlockStage.LEFT
        self._tell(decision)

    def _close(self, evidence: int | None) -> None:
        self._stage = BlockStage.CLOSING
        with on_failure(self._break):
            self._contribution.close(self._outbox.take_whole(), evidence)
        self._stage = BlockStage.CLOSED

    def _flush(self) -> None:
        if self._contribution.life is not None:
            super()._flush()

    def _store(self, rows: Sequence[Row]) -> None:
        run_blocking(lambda: self._contribution.add(self._contribution.opened(), rows))
