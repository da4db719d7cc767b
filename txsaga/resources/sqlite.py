"""
SQLite as a participant: it can't vote, so its own commit comes last and is the decision (R12).

That commit writes the branch's row and the transaction's own row. Before it nothing of the branch outlives its session;
after it every process finds both rows. A rollback while the outcome is unknown writes the barrier first.

Some errors roll the whole transaction back, and the driver silently begins another one: a savepoint around the work
detects that. Without it half of the work would be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.errors import ConfigError, OutcomeUnknown, ProtocolError, RolledBack
from txsaga.evidence.driver_errors import edge, is_blocked, is_forbidden, reached, refuses_commit
from txsaga.evidence.local_transaction import allow_commits, refuse_commits
from txsaga.evidence.sessions import begin_now, short_waits
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.database import BranchRows, DatabaseParticipant, LoopOpener, Shown, finish_of

if TYPE_CHECKING:
    from sqlalchemy import Engine, RootTransaction

_OFF, _NORMAL = 0, 1


class SqliteParticipant(DatabaseParticipant):
    """One registered database file."""

    capabilities = CAPABILITIES[ResourceKind.SQLITE]

    def probe(self) -> None:
        """Raise unless a commit is on disk when it is answered, and the evidence tables exist or may be created."""
        with reached(self.name, self._engine) as connection:
            if _is_read_only(connection):
                raise ConfigError(f"resource {self.name!r} is read only; leave it out, or open it for writing")
            level = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
            journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        if level == _OFF or (level == _NORMAL and journal == "wal"):
            raise ConfigError(
                f"resource {self.name!r} can't come last: its commit would be the decision, and a loss of power would "
                "lose it; set PRAGMA synchronous = FULL on each connection of its engine"
            )
        self._require_tables()

    def enlist(self, branch: BranchId) -> SqliteBranch:
        """Open a transaction for a branch."""
        return self._enlisted(branch, self._engine)

    def in_loop(self) -> LoopOpener:
        """Return the opener of branches whose sessions suspend only their task."""
        return LoopOpener(self._engine_of_loops("aiosqlite"), self._enlisted)

    def _enlisted(self, branch: BranchId, engine: Engine, shown: Shown = lambda it: it) -> SqliteBranch:
        _ = self._rows.place
        with edge(self.name):
            connection = engine.connect()
            with on_failure(connection.close):
                opened = connection.begin()
                refuse_commits(connection)
                begin_now(connection)
                self._rows.where.require_same(connection, self._rows.place)
                connection.exec_driver_sql(f"SAVEPOINT {_mark(branch)}").close()
        return SqliteBranch(connection, opened, branch, self._rows, shown(connection))

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Find out the outcome: a branch holds nothing after its session."""
        with self._reached() as connection:
            return finish_of(decision, committed=self._rows.is_committed(connection, branch))

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return nothing: it holds no votes."""
        return []


class SqliteBranch:
    """The work of one branch."""

    def __init__(
        self, connection: Connection, opened: RootTransaction, branch: BranchId, rows: BranchRows, handle: object
    ) -> None:
        self.connection, self.handle = connection, handle
        self._opened, self._branch, self._rows = opened, branch, rows

    def prepare(self) -> Callable[[], Vote]:
        """Refuse: a file without a session rolls back everything it was asked to hold."""
        raise ProtocolError(f"branch {self._branch.gid} is in a SQLite file, which can't vote")

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """Roll back; it did not vote yes, so it can't be committed."""
        if decision is Decision.COMMIT:
            raise ProtocolError(f"branch {self._branch.gid} did not vote yes, so it can't be committed")
        return self._rolled_back

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Commit in one phase; with the transaction's own row, that commit is the decision."""
        self._refuse_ended()
        return lambda: self._committed(decides=transaction is not None)

    def leave(self) -> None:
        """Give the session back, rolled back."""
        self.connection.close()

    def _committed(self, *, decides: bool) -> None:
        try:
            self._rows.write(self.connection, self._branch)
            if decides:
                self._rows.write_main(self.connection, self._branch)
        except DBAPIError as error:
            raise RolledBack(f"branch {self._branch.gid} can't leave its evidence: {error.orig}") from error
        allow_commits(self.connection)
        try:
            self._opened.commit()
        except DBAPIError as error:
            if refuses_commit(error):
                raise RolledBack(f"branch {self._branch.gid} can't commit: {error.orig}") from error
            raise OutcomeUnknown(f"it is unknown whether branch {self._branch.gid} was committed: {error}") from error

    def _rolled_back(self) -> Finish:
        if self._opened.is_active:
            self._opened.rollback()
        return Finish.DONE

    def _refuse_ended(self) -> None:
        try:
            self.connection.exec_driver_sql(f"RELEASE {_mark(self._branch)}").close()
        except SQLAlchemyError as error:
            raise RolledBack(
                f"the transaction of branch {self._branch.gid} was committed or rolled back inside the step, by an "
                "error that was dropped too, or its connection was closed; work that a COMMIT included is durable, "
                "so check before you repeat it; leave COMMIT and ROLLBACK to the coordinator"
            ) from error


def _mark(branch: BranchId) -> str:
    return f'"{branch.gid}"'


def _is_read_only(connection: Connection) -> bool:
    """Rewrite an existing value: only that shows whether the file, or its connection, is read only."""
    with short_waits(connection, locks=0):
        try:
            begin_now(connection)
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            connection.exec_driver_sql(f"PRAGMA user_version = {version:d}").close()
        except DBAPIError as error:
            if not is_blocked(error):  # another session writes
                return is_forbidden(error)
        finally:
            connection.rollback()
    return False
