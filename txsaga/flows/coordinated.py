"""
A coordinated transaction: one outcome for several resources, the messages and the offsets that belong to it.

    with producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        with tx.on("current") as connection: …
        with tx.on("mortgage") as connection: …
        tx.send("transfers", b"…")

Each resource is named in the store before its work begins (R9). Leaving the block asks all resources for their votes at
once; the decision, with the messages and the names of those that voted yes, is ONE commit of the home database; then
all are notified. If one resource is alone, or can't vote, its own commit is the decision: the transaction is sealed
before it, and its evidence row shows the decision to everyone (R12).

    no exception                     COMMIT, if everybody votes yes; else ROLLBACK, and the no is raised
    exception in the block           ROLLBACK, and it propagates
    this process dies                before the decision ROLLBACK, after it COMMIT: recovery finishes it
    a resource fails after COMMIT    `Unfinished`: the commit is final, recovery finishes it later
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from txsaga.aio.block import AsyncBlock, AsyncContext, InLoop, ShieldedContext
from txsaga.consume.delivery import Consumed, Delivery, consume
from txsaga.core.arguments import check_count, check_kind
from txsaga.core.fibers import Loops, run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.records import Group, TxRecord
from txsaga.errors import TransientFailure
from txsaga.flows.actions import COMMITTED, elsewhere
from txsaga.flows.ballot import Ballot, CastVote, Rule, rule_of
from txsaga.flows.ballots import vote
from txsaga.flows.enlisted import BranchBlock, Enlisted, check_names
from txsaga.flows.journal import Journal
from txsaga.flows.lane import BlockLane
from txsaga.flows.owner import Owner
from txsaga.lake.gates import Gate
from txsaga.lake.table_writes import HomeTable, Table, TableWrites
from txsaga.messages.stored_block import PART


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

    if not TYPE_CHECKING:  # which finds a wrong name by itself
        __getattr__ = elsewhere(COMMITTED)

    def on(self, resource: str, *, driver: bool = False) -> AsyncOn:
        """Work in a resource, in the same session each time; nothing is visible before the decision.

        With `driver` it is the driver's connection instead of SQLAlchemy's. Tasks that share a session take turns in
        it; in different resources they work in parallel.
        """
        return AsyncOn(self._block.on(resource, driver=driver), self._in_loop, self._one)

    def journal(self, resource: str) -> Journal:
        """Record what a resource is to do when the block ends; `execute` does not block."""
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


_making = Lock()


class On:
    """Work in one resource of a transaction: `with tx.on(resource) as connection`."""

    __slots__ = ("_block", "_driver", "_resource")

    def __init__(self, block: Coordinated, resource: str, *, driver: bool) -> None:
        self._block, self._resource, self._driver = block, resource, driver

    def __enter__(self) -> Any:  # for most resources, a SQLAlchemy connection
        self._block._require_open("work in a resource")
        return self._block._branches.work.handle(self._resource, driver=self._driver)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave the session open for the transaction; raise `OwnLock` if it waited for its own transaction."""
        if error is not None:
            self._block._branches.work.refuse_own_lock(self._resource, error)


class Coordinated(BranchBlock, InLoop[AsyncCoordinated]):
    """One coordinated transaction of a producer, as a context manager."""

    _looping = AsyncCoordinated

    def __init__(
        self,
        kernel: Kernel,
        group: Group,
        resources: Sequence[str],
        *,
        key: str | None,
        run: str | None = None,
        patience: float = 0.0,
    ) -> None:
        check_names(resources)
        owner = Owner(kernel, group, key=key, run=run)
        super().__init__(kernel, owner, Enlisted(kernel, owner, resources, patience))
        self._lanes: dict[str, BlockLane] = {}
        self._table_writes: TableWrites | None = None

    @property
    def _tables(self) -> TableWrites:
        """Its table writes: created, and registered with the owner, by the first thread that needs them."""
        with _making:
            if self._table_writes is None:
                self._table_writes = tables = TableWrites(self._kernel, PART, self._life_for)
                self._owner.recorded = lambda: tables.recorded
            return self._table_writes

    def on(self, resource: str, *, driver: bool = False) -> AbstractContextManager[Any]:
        """Work in a resource, in the same session each time; nothing is visible before the decision.

        With `driver` it is the driver's connection instead of SQLAlchemy's. Threads share the session, so they take
        turns in it; in different resources they work in parallel.
        """
        check_kind(resource, str, "the resource", "give the name of a registered one")
        return On(self, resource, driver=driver)

    def journal(self, resource: str) -> Journal:
        """Record what a resource is to do when the block ends; nothing is sent to it before.

        For statements whose results are not read: their locks begin there. A resource is used by `on` or by its
        journal.
        """
        what = "write into a journal"
        self._require_open(what)
        check_kind(resource, str, "the resource", "give the name of a registered one")
        return self._branches.work.journal(resource, partial(self._require_open, what))

    def lane(self, resource: str) -> BlockLane:
        """Open the auxiliary lane of a resource, whose units you commit or roll back one by one."""
        self._require_open("open a lane")
        check_kind(resource, str, "the resource", "give the name of a registered one")
        if resource not in self._lanes:
            lane = BlockLane(self._kernel, self._branches, resource, self._require_open)
            self._lanes.setdefault(resource, lane)
        return self._lanes[resource]

    if not TYPE_CHECKING:  # which finds a wrong name by itself
        __getattr__ = elsewhere(COMMITTED)

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
        self._require_effects("consume")
        consume(self, consumed, batch)

    def table(self, name: str) -> Table:
        """Return a table of the home catalog; what is written to it becomes visible with the decision."""
        self._require_effects("write to a table")
        return self._tables.table(name)

    def token(self) -> str:
        """Return the token by which Iceberg clients join: what they commit becomes visible with the decision."""
        self._require_effects("be joined")
        return self._tables.token()

    def rows(self, table: str) -> HomeTable:
        """Return a table of the home database; the rows staged for it are written by the decision."""
        self._require_effects("write rows")
        return self._tables.rows(table)

    def check(self, about: str, rows: object, gate: Gate) -> None:
        """Let a gate check rows or messages of this transaction; raise `NotCarried` if it rejects them."""
        self._require_open("check rows")
        self._owner.polled = True
        self._tables.check(about, rows, gate)

    def _require_effects(self, what: str) -> None:
        """Raise unless the decision can have effects at home; from here on no resource decides alone."""
        self._require_open(what)
        self._branches.refuse_last_resource(what)
        self._owner.with_effects = True

    def _life_for(self, what: str) -> TxRecord:
        self._require_open(what)
        return self._owner.life


Opened = TypeVar("Opened")
Answer = TypeVar("Answer")
FIRST, LONGEST = 0.05, 2.0


def again(
    open: Callable[[], AbstractContextManager[Opened]], work: Callable[[Opened], Answer], attempts: int = 3
) -> Answer:
    """Run work in a transaction that `open` makes, up to so many times while it raises `TransientFailure`."""
    check_count(attempts, "attempts")
    pause = FIRST
    while True:
        attempts -= 1
        try:
            with open() as tx:
                answer = work(tx)
            return answer
        except TransientFailure:
            if not attempts:
                raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
