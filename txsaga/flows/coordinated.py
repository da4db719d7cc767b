"""
A coordinated transaction: one outcome for several resources, the messages and the offsets that belong to it.

    with producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        with tx.on("current") as connection: …
        with tx.on("mortgage") as connection: …
        tx.send("transfers", b"…")

With a key, each resource is named in the store before its work begins (R9); without one nothing is written before the
end, and the name of prepared work shows its transaction. Leaving the block asks all resources for their votes at once;
the decision, with the messages and the names of those that voted yes, is ONE commit of the home database; then all are
notified. If one resource is alone, or can't vote, its own commit is the decision: the transaction is sealed before it,
and its evidence row shows the decision to everyone (R12).

    no exception                     COMMIT, if everybody votes yes; else ROLLBACK, and the no is raised
    exception in the block           ROLLBACK, and it propagates
    this process dies                before the decision ROLLBACK, after it COMMIT: recovery finishes it
    a resource fails after COMMIT    `Unfinished`: the commit is final, recovery finishes it later
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

from txsaga.aio.block import AsyncBlock, AsyncContext, ShieldedContext
from txsaga.consume.dead_letter import short_cause
from txsaga.consume.delivery import Consumed, Delivery, consume
from txsaga.core.arguments import check_count, check_kind
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure, report_failure
from txsaga.core.fibers import Loops, run_blocking
from txsaga.core.forking import this_process
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.records import Group, Row, TxRecord
from txsaga.errors import (
    DecidedOtherwise,
    EffectConflict,
    Heuristic,
    InDoubt,
    TransactionError,
    TransientFailure,
    TxSagaError,
    Unfinished,
)
from txsaga.flows.ballot import Ballot, CastVote, Rule, rule_of
from txsaga.flows.ballots import vote
from txsaga.flows.block_lane import BlockLane
from txsaga.flows.calls import BranchVote
from txsaga.flows.journal import Journal
from txsaga.flows.owner import PART, BlockOwner, check_names
from txsaga.flows.work import PhaseTwoResult
from txsaga.lake.gates import Gate
from txsaga.lake.table_writes import HomeTable, Table, TableWrites
from txsaga.messages.message_buffer import FLUSH, MessageBuffer
from txsaga.messages.stored_block import BlockStage


class AsyncOn(AsyncContext[Any]):
    """Work in one resource, within an event loop; its session stays open, so leaving it only handles errors."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return None if error is None else await super().__aexit__(kind, error, trace)


class AsyncLane(AsyncOn):
    """The auxiliary lane of one resource, within an event loop: `async with lane as connection`."""

    def __init__(self, lane: BlockLane, in_loop: Loops, one: asyncio.Lock) -> None:
        super().__init__(lane, in_loop, one)
        self._lane = lane

    async def commit(self) -> None:
        """Commit the open unit now; do nothing if there is none."""
        await self._settled(self._lane.commit)

    async def roll_back(self) -> None:
        """Roll the open unit back; the main transaction continues."""
        await self._settled(self._lane.roll_back)

    async def _settled(self, end: Callable[[], None]) -> None:
        async with self._one:  # a task cancelled while it waits here leaves: nothing was begun
            await self._in_loop(end, unbroken=True)


class AsyncCoordinated(AsyncBlock["Coordinated"]):
    """One coordinated transaction of a producer, within an event loop."""

    crossing = ShieldedContext

    def on(self, resource: str, *, driver: bool = False) -> AsyncOn:
        """Work in a resource, in the same session each time; nothing is visible before the decision.

        With `driver` it is the driver's connection instead of SQLAlchemy's. Tasks that share a session take turns in
        it; in different resources they work in parallel.
        """
        return AsyncOn(self._block.on(resource, driver=driver), self._in_loop, self._one)

    def journal(self, resource: str) -> Journal:
        """Record what a resource is to do when it is asked for its vote; `execute` does not block."""
        return self._block.journal(resource)

    async def lane(self, resource: str) -> AsyncLane:
        """Open the auxiliary lane of a resource, whose units you commit or roll back one by one."""
        return AsyncLane(await self._alone(partial(self._block.lane, resource)), self._in_loop, self._one)

    async def ballot(self, name: str, *voters: str, rule: Rule | str = Rule.ALL, needed: int | None = None) -> None:
        """Open a ballot: unless it is carried, the transaction can only roll back."""
        called = partial(self._block.ballot, name, *voters, rule=rule, needed=needed)
        await self._alone(partial(run_blocking, called))

    async def vote(self, name: str, voter: str, *, yes: bool, evidence: Mapping[str, object] | None = None) -> bool:
        """Cast a vote in one of its ballots; False if this voter has already voted."""
        cast = partial(self._block.vote, name, voter, yes=yes, evidence=evidence)
        return await self._alone(partial(run_blocking, cast))


logger = logging.getLogger("txsaga")
_making = Lock()

WHY = "the block ended"


class On:
    """Work in one resource of a transaction: `with tx.on(resource) as connection`."""

    __slots__ = ("_failed", "_open")

    def __init__(self, open: Callable[[], object], failed: Callable[[BaseException], None]) -> None:
        self._open, self._failed = open, failed

    def __enter__(self) -> Any:  # for most resources, a SQLAlchemy connection
        return self._open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the session open for the transaction; raise `OwnLock` if it waited for its own transaction."""
        if error is not None:
            self._failed(error)


class Coordinated(MessageBuffer):
    """One coordinated transaction of a producer, as a context manager."""

    def __init__(
        self,
        kernel: Kernel,
        group: Group,
        resources: Sequence[str],
        *,
        key: str | None,
        run: str | None = None,
        patience: float = 0.0,
        owner: BlockOwner | None = None,
    ) -> None:
        super().__init__(kernel)
        self._stage = BlockStage.NEW
        if owner is None:
            check_names(resources)
            owner = BlockOwner(kernel, group, resources, key=key, run=run, patience=patience)
        self._owner = owner
        self._lanes: dict[str, BlockLane] = {}
        self._bound = False  # something that may be refused is decided with it
        self._table_writes: TableWrites | None = None
        self._process = this_process()
        self._looped: AsyncCoordinated | None = None
        self.decision: Decision | None = None

    @property
    def _tables(self) -> TableWrites:
        """Its table writes: created, and registered with the owner, by the first thread that needs them."""
        with _making:
            if self._table_writes is None:
                self._table_writes = tables = TableWrites(self._kernel, PART, self._life_for)
                self._owner.recorded = lambda: tables.recorded
            return self._table_writes

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once the block is entered."""
        return self._owner.txid

    @property
    def id(self) -> str | None:
        """The id that names store and transaction, once there is one."""
        return None if self.txid is None else self._kernel.store.registry.identity.transaction(self.txid)

    def __enter__(self) -> Self:
        """Take a transaction number; with a key, name the branches, and take over or refuse earlier work under it."""
        self._require_new()
        self._stage = BlockStage.ENTERING
        with on_failure(self._allow_entry), report_failure(self._owner.abandon):
            self._owner.enter()
        self._stage = BlockStage.OPEN
        return self

    def _allow_entry(self) -> None:
        self._stage = BlockStage.NEW  # not before it is abandoned: another thread's beginning would be undone

    async def __aenter__(self) -> AsyncCoordinated:
        self._require_new()
        looped = AsyncCoordinated(self, self._kernel.in_loop)
        await looped.enter()
        self._looped = looped
        return looped

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide; only this task waits."""
        assert self._looped is not None
        try:
            await self._looped.leave(kind, error, trace)
        finally:
            self._looped = None  # it refers to the block: only garbage collection would free both

    def on(self, resource: str, *, driver: bool = False) -> AbstractContextManager[Any]:
        """Work in a resource, in the same session each time; nothing is visible before the decision.

        With `driver` it is the driver's connection instead of SQLAlchemy's. Threads share the session, so they take
        turns in it; in different resources they work in parallel.
        """
        check_kind(resource, str, "the resource", "give the name of a registered one")
        return On(
            lambda: self._worked_in(resource, driver=driver),
            lambda error: self._owner.work.refuse_own_lock(resource, error),
        )

    def journal(self, resource: str) -> Journal:
        """Record what a resource is to do when it is asked for its vote; nothing is sent to it before.

        For statements whose results are not read: all take one round trip, and their locks begin there. A resource is
        used by `on` or by its journal.
        """
        what = "write into a journal"
        self._require_open(what)
        check_kind(resource, str, "the resource", "give the name of a registered one")
        return self._owner.work.journal(resource, partial(self._require_open, what))

    def _worked_in(self, resource: str, *, driver: bool) -> object:
        self._require_open("work in a resource")
        return self._owner.work.handle(resource, driver=driver)

    def lane(self, resource: str) -> BlockLane:
        """Open the auxiliary lane of a resource, whose units you commit or roll back one by one."""
        self._require_open("open a lane")
        check_kind(resource, str, "the resource", "give the name of a registered one")
        if resource not in self._lanes:
            self._lanes.setdefault(resource, BlockLane(self._kernel, self._owner, resource, self._require_open))
        return self._lanes[resource]

    def ballot(self, name: str, *voters: str, rule: Rule | str = Rule.ALL, needed: int | None = None) -> None:
        """Open a ballot: unless it is carried, the transaction can only roll back."""
        self._require_open("call a ballot")
        self._owner.call(Ballot(name=name, voters=voters, rule=rule_of(rule), needed=needed))

    def vote(self, name: str, voter: str, *, yes: bool, evidence: Mapping[str, object] | None = None) -> bool:
        """Cast a vote in one of its ballots; False if this voter has already voted."""
        self._require_open("vote")
        said = CastVote(voter=voter, yes=yes, evidence=evidence or {})
        return vote(self._kernel, self._owner.life.txid, name, said)

    def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Consume a message, or move a stream's cursor past a chunk, with the decision."""
        self._require_open("consume")
        self._owner.refuse_last_resource("consume")
        consume(self, consumed, batch)
        self._bound = True

    def table(self, name: str) -> Table:
        """Return a table of the home catalog; what is written to it becomes visible with the decision."""
        self._require_open("write to a table")
        self._owner.refuse_last_resource("write to a table")
        self._bound = self._owner.with_effects = True
        return self._tables.table(name)

    def rows(self, table: str) -> HomeTable:
        """Return a table of the home database; the rows staged for it are written by the decision."""
        self._require_open("write rows")
        self._owner.refuse_last_resource("write rows")
        self._bound = self._owner.with_effects = True
        return self._tables.rows(table)

    def check(self, about: str, rows: object, gate: Gate) -> None:
        """Let a gate check rows or messages of this transaction; raise `NotCarried` if it rejects them."""
        self._require_open("check rows")
        self._owner.polled()
        self._tables.check(about, rows, gate)

    def join_life(self) -> TxRecord:
        """Return the transaction record, to bind other work to it."""
        return self._life_for("consume")

    def _life_for(self, what: str) -> TxRecord:
        self._require_open(what)
        return self._owner.life

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Decide; an exception of the block always propagates."""
        if self._process != this_process():
            if error is None:
                self._require_ours()
            return
        try:
            with self._leaving(error):
                self._leave(error)
        finally:
            self._owner.leave()

    def _leave(self, error: BaseException | None) -> None:
        if self._stage is BlockStage.OPEN and error is None:
            try:
                self._commit()
            except (DecidedOtherwise, InDoubt, Unfinished, Heuristic):
                raise
            except BaseException as reason:
                if self._stage is BlockStage.OPEN or isinstance(reason, EffectConflict):
                    with suppress(TxSagaError):  # if this fails, others find it open and roll it back
                        self._roll_back(f"{type(reason).__name__}: {reason}", reason)
                elif not isinstance(reason, TxSagaError) and self.decision is not Decision.ROLLBACK:  # by a signal
                    reason.add_note(f"transaction {self.txid} may stand committed: ask before it is done again")
                raise
        elif self._stage in (BlockStage.OPEN, BlockStage.BROKEN):
            broken = TransactionError("the transaction did not commit: its messages could not all be stored")
            if error is not None:
                self._owner.work.explain_own_lock(error)
            why = f"the block raised {type(error).__name__}: {error}" if error else "it was broken"
            self._roll_back(why, error or broken)
            if error is None:
                raise broken

    def _commit(self) -> None:
        work = self._owner.work
        work.refuse_open_units()
        journals, rows = work.take_journals(), self._outbox.take_whole()
        work.open_journals(journals)
        last = work.last(alone=not self._bound)
        votes = work.named(work.prepare(besides=last), last=last)
        if last is None:
            self._stage = BlockStage.CLOSED  # from here on the answer may be lost: only the store knows
            self._follow(self._owner.decide(Decision.COMMIT, WHY, rows, votes))
        else:
            self._commit_last(rows, votes, last)

    def _commit_last(self, rows: Sequence[Row], votes: Sequence[BranchVote], last: str) -> None:
        assert self.id is not None
        self._stage = BlockStage.CLOSED
        standing, failure = self._owner.end(rows, votes, last), None
        if standing is None:
            self._stage = BlockStage.WORKING
            standing, failure = self._owner.commit_last(last, self.id, votes)
        self._follow(standing, failure)

    def _follow(self, standing: Decision, failure: Exception | None = None) -> None:
        """Notify everyone of the decision, and raise unless it is a plain success."""
        told = self._told(standing)
        if failure is not None:
            raise failure
        if standing is not Decision.COMMIT:
            raise DecidedOtherwise(self._owner.life.txid, standing.name)
        if told.against:
            raise told.against[0]
        if told.silent:
            raise Unfinished(self._owner.life.txid, list(told.silent))

    def _roll_back(self, why: str, leaves: BaseException | None = None) -> PhaseTwoResult:
        """Roll back; note on the exception which resources were not notified, and which had committed."""
        self._stage = BlockStage.BROKEN
        self._owner.release()
        told = self._told(self._owner.decide(Decision.ROLLBACK, short_cause(why)))
        notes = [str(heuristic) for heuristic in told.against]
        for name, silent in told.silent.items():
            notes.append(f"resource {name!r} was not told of the rollback: {silent}; recovery tells it")
            logger.warning("transaction %s: %s", self.txid, notes[-1])
        if leaves is not None:
            for note in notes:
                leaves.add_note(note)
        return told

    def _told(self, decision: Decision) -> PhaseTwoResult:
        """Notify the resources, and then the listeners."""
        self.decision, self._stage = decision, BlockStage.LEFT
        told = self._owner.finish(decision)
        self._tell(decision)
        self._kernel.tell_decided()
        return told

    def _flush(self) -> None:
        if self._outbox.bytes > FLUSH:
            with on_failure(self._break):
                run_blocking(partial(self._owner.add, self._outbox.take_whole()))

    def _break(self) -> None:
        self._stage = BlockStage.BROKEN

    def _require_open(self, what: str) -> None:
        self._require_ours()
        if self._stage is not BlockStage.OPEN:
            self._stage.require_open(what, self.txid)

    def _require_ours(self) -> None:
        if self._process != this_process():
            raise TransactionError("a forked child has nothing of its parent's block; open another with a producer")


Opened = TypeVar("Opened")
Answer = TypeVar("Answer")
FIRST, LONGEST = 0.05, 2.0


def again(
    open: Callable[[], AbstractContextManager[Opened]], work: Callable[[Opened], Answer], attempts: int = 3
) -> Answer:
    """Run work in a transaction that `open` makes, up to so many times while it raises `TransientFailure`."""
    check_count(attempts, "attempts")
    pause = FIRST
    for _ in range(attempts - 1):
        try:
            return _once(open, work)
        except TransientFailure:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
    return _once(open, work)


def _once(open: Callable[[], AbstractContextManager[Opened]], work: Callable[[Opened], Answer]) -> Answer:
    with open() as tx:
        answer = work(tx)
    return answer
