"""
What participants in databases share: the user's engine, and the row that a branch writes in its own commit (R9).

The row is in the evidence table, next to the rows of local work, under the branch's name. If a branch is no longer
prepared and has a row, some session committed it; without a row, one rolled it back. If the row were written anywhere
but in the branch itself, it could vouch for work that was never committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, Table, and_, bindparam, delete, literal, or_, select, text, tuple_
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, DecidedOtherwise, RetryLater, RightsMissing
from txsaga.evidence import statements
from txsaga.evidence.driver_errors import edge, is_forbidden, reached
from txsaga.evidence.location import EvidenceLocation, EvidenceTables, missing
from txsaga.evidence.schema import EVIDENCE, PAST, EvidenceKey
from txsaga.evidence.sessions import PLAIN, connection_of, engine_of_loops, settle_level, short_waits
from txsaga.flows.branch import PREFIX, BranchId, Finish
from txsaga.resources import journal
from txsaga.resources.participant import Ages, EnlistedBranch, Over, ours

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from txsaga.flows.journal import Journalled

BRANCHES = "xa:"
KEY = ("store", "incarnation", "txid", "branch")
PAGE = 1_000
PATIENCE = 60.0
"""Seconds that a vote or its second phase may take: deferred constraints are checked during them."""


class BranchRows:
    """The rows of branches in one database."""

    def __init__(self, where: EvidenceLocation, name: str) -> None:
        self.where, self._name = where, name

    @property
    def place(self) -> EvidenceTables:
        """The evidence tables."""
        return self.where.place

    def write(self, connection: Connection, branch: BranchId) -> None:
        """Insert a branch's row in its own transaction: once, and in this database only (R10)."""
        place = self.place
        row = statements.row(EvidenceKey.parse(branch.transaction), Decision.COMMIT, branch.evidence)
        written = statements.write_if_here(place.table)
        if connection.execute(written, {**row, "here": place.database.hex}, execution_options=PLAIN).rowcount != 1:
            self.where.refuse_other(None, place)

    def write_main(self, connection: Connection, branch: BranchId) -> None:
        """Insert the transaction's own row as well; `DecidedOtherwise` if the barrier exists."""
        key = EvidenceKey.parse(branch.transaction)
        try:
            statements.write_now(connection, self.place.table, key, Decision.COMMIT)
        except IntegrityError as error:
            raise DecidedOtherwise(key.txid, Decision.ROLLBACK.name) from error

    def fence(self, connection: Connection, branch: BranchId) -> Finish:
        """Write the barrier in place of a branch's row, unless that exists."""
        key, place = EvidenceKey.parse(branch.transaction), self.place
        with short_waits(connection, locks=1):
            written = self.where.write_barrier(connection, place, key, branch.evidence)
            if written is None:
                raise RetryLater(f"branch {branch.gid} is being committed at this moment")
            return Finish.COMMITTED if not written and self.is_committed(connection, branch) else Finish.DONE

    def is_committed(self, connection: Connection, branch: BranchId) -> bool:
        """Return whether a branch was committed."""
        return branch in self.committed(connection, [branch])

    def committed(self, connection: Connection, branches: Collection[BranchId]) -> set[BranchId]:
        """Return the branches that were committed, in one query."""
        place = self.place
        self.where.require_same(connection, place)
        keys = {EvidenceKey.parse(branch.transaction) for branch in branches}
        rows = connection.execute(statements.look(place.table, keys)).all() if keys else []
        done = {(EvidenceKey(*row[:3]), row.branch) for row in rows if row.outcome == Decision.COMMIT}
        return {branch for branch in branches if (EvidenceKey.parse(branch.transaction), branch.evidence) in done}

    def drop(self, connection: Connection, branch: BranchId) -> None:
        """Delete a branch's row."""
        self.where.require_same(connection, self.place)
        self._delete(connection, [branch], "a branch to be forgotten")

    def sweep(self, connection: Connection, store: str, ages: Ages, over: Over) -> int:
        """Delete old rows of finished branches, one page per commit."""
        place, after, done = self.place, (0, 0, ""), 0
        self.where.require_same(connection, place)
        while rows := connection.execute(_old(connection, place.table, store, ages, after)).all():
            after = tuple(rows[-1])
            if wanted := over([each for row in rows for each in _named(store, *row)]):
                self._delete(connection, wanted, "rows of old branches to be deleted")
            connection.commit()
            done += len(wanted)
        return done

    def _delete(self, connection: Connection, branches: Collection[BranchId], purpose: str) -> None:
        table = self.place.table
        same = and_(*(table.c[name] == bindparam(f"its_{name}") for name in KEY))
        rows = [(*EvidenceKey.parse(branch.transaction), branch.evidence) for branch in branches]
        named = [{f"its_{name}": value for name, value in zip(KEY, row, strict=True)} for row in rows]
        try:
            connection.execute(delete(table).where(same), named)
        except DBAPIError as error:
            if is_forbidden(error):
                raise RightsMissing(f"resource {self._name!r} must grant DELETE on {EVIDENCE} for {purpose}") from error
            raise


Shown = Callable[[Connection], object]
"""Converts a connection into what the user works with."""


class LoopOpener:
    """Opens the branches of one database within an event loop, on the asyncio engine that it was registered with.

    They are the branches of threads, on a session that suspends only its task. Everything else that is asked about them
    runs in threads, on the other engine. If these lead to different databases, the session reports it at its vote.
    """

    def __init__(self, engine: AsyncEngine, enlisted: Callable[[BranchId, Engine, Shown], EnlistedBranch]) -> None:
        self._engine, self._enlisted = engine, enlisted

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        """Open a transaction for a branch; its handle is SQLAlchemy's asynchronous connection."""
        from sqlalchemy.ext.asyncio import AsyncConnection

        return self._enlisted(branch, self._engine.sync_engine, lambda it: AsyncConnection(self._engine, it))


class DatabaseParticipant:
    """What the participants in databases have in common: the user's engine, and the rows of branches."""

    driver: tuple[str, str] | None = None
    """The only driver through which a branch can vote, and how its URL begins."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        create: bool = True,
        database: UUID | None = None,
        where: EvidenceLocation | None = None,
        loops: AsyncEngine | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if self.driver is not None and engine.dialect.driver != self.driver[0]:
            raise ConfigError(
                f"resource {name!r} can't vote through {engine.dialect.driver}; open its engine with {self.driver[1]}://…"
            )
        self.name, self.loops, self._engine, self._may_create = name, loops, engine, create
        self._rows = BranchRows(where or EvidenceLocation(engine, name, create=create, database=database), name)
        self._patience = patience

    @property
    def database(self) -> UUID:
        """The uuid of this database."""
        return self._rows.place.database

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute journalled statements in an open branch."""
        with edge(self.name):
            journal.do(connection_of(session.handle), statements, self.name)

    def fence(self, branch: BranchId) -> Finish:
        """Make sure that no commit of a branch is under way, or comes late."""
        with self._reached() as connection:
            settle_level(connection)
            return self._rows.fence(connection, branch)

    def forget(self, branch: BranchId) -> None:
        """Delete the row of a finished branch."""
        with self._reached() as connection, connection.begin():
            self._rows.drop(connection, branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Delete old rows of finished branches."""
        with self._reached() as connection:
            return self._rows.sweep(connection, store, ages, over)

    def close(self) -> None:
        """Do nothing: the engine is the user's."""

    def _engine_of_loops(self, *drivers: str) -> AsyncEngine:
        """Return the engine for work within an event loop; `ConfigError` if there is none of these drivers."""
        loops = engine_of_loops(self.loops, self.name)
        found = loops.dialect
        if found.driver not in drivers:
            able = "".join(f"open its engine with {found.name}+{driver}://…, or " for driver in drivers)
            raise ConfigError(
                f"resource {self.name!r} takes no part in a coordinated transaction within an event loop through "
                f"{found.driver}; {able}enter the block in a thread, by asyncio.to_thread"
            )
        return loops

    def _reached(self) -> AbstractContextManager[Connection]:
        """Connect, after the evidence tables were located: the pool may have no second session for that."""
        assert self._rows.place
        return reached(self.name, self._engine)

    def _require_tables(self, *, may_create: bool = True) -> None:
        if not self._rows.where.look() and not (self._may_create and may_create):
            raise missing(self._engine, self.name)

    def _finished(
        self, connection: Connection, branch: BranchId, decision: Decision, end: Callable[[Decision], bool]
    ) -> Finish:
        """Carry out the decision, or find out how the branch was finished; `end` returns whether it was there."""
        if self._rows.is_committed(connection, branch):
            end(Decision.ROLLBACK)  # something that took the branch's name
            return finish_of(decision, committed=True)
        if end(decision):
            return Finish.DONE
        return finish_of(decision, committed=self._rows.is_committed(connection, branch))


def finish_of(decision: Decision, *, committed: bool) -> Finish:
    """Return what a decision found that came to a finished branch."""
    if committed == (decision is Decision.COMMIT):
        return Finish.DONE
    return Finish.COMMITTED if committed else Finish.ROLLED_BACK


def _old(connection: Connection, table: Table, store: str, ages: Ages, after: tuple[object, ...]) -> Select[Any]:
    older = f"at < {PAST[connection.dialect.name]}"
    committed = text(f"outcome = {Decision.COMMIT:d} and {older.format(ages.committed.total_seconds())}")
    barriers = text(f"outcome = {Decision.ROLLBACK:d} and {older.format(ages.barriers.total_seconds())}")
    key = (table.c.incarnation, table.c.txid, table.c.branch)
    behind = tuple_(*key) > tuple_(*(literal(value, column.type) for value, column in zip(after, key, strict=True)))
    own = table.c.store == store, table.c.branch.like(f"{BRANCHES}%")
    return select(*key).where(*own, or_(committed, barriers), behind).order_by(*key).limit(PAGE)


def _named(store: str, incarnation: int, txid: int, branch: str) -> Sequence[BranchId]:
    return ours(f"{PREFIX}:{store}-{incarnation:x}-{txid:x}:{branch.removeprefix(BRANCHES)}")
