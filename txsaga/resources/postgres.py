"""
PostgreSQL as a participant, through the user's own SQLAlchemy engine.

A branch can be finished from any process that reaches the same database. A branch that is no longer listed as prepared
has been finished, and its own row shows how: the row is read after the list, never before it, or a commit between the
two would look like a rollback. A prepared transaction whose row already exists is not the branch, but something that
took its name: it is rolled back, whatever was decided (R9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from txsaga import errors
from txsaga.core.decision import Decision
from txsaga.core.fibers import raise_if_cancelled, run_blocking
from txsaga.evidence.driver_errors import code_of, edge, reached
from txsaga.evidence.libpq import ServerAnswer, SessionLost, ask_each
from txsaga.evidence.sessions import commit_each
from txsaga.flows.branch import PREFIX, BranchId, Finish
from txsaga.resources import codes
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.database import DatabaseParticipant, LoopOpener, Shown, finish_of
from txsaga.resources.participant import ours
from txsaga.resources.postgres_branch import PostgresBranch, PostgresSession, texts_in
from txsaga.resources.waits import PostgresLockView, is_cancelled

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from txsaga.flows.journal import Journalled
    from txsaga.resources.participant import EnlistedBranch

AT_ONCE = 100
"""Branches that are sent their decision before the first of them has answered."""

LONGEST = "5s"
"""How long a journal waits for a lock, unless the engine's own `lock_timeout` says otherwise."""

_ABLE = """select current_setting('max_prepared_transactions')::int > 0 as prepares,
  pg_is_in_recovery() or current_setting('transaction_read_only')::bool as reads_only,
  coalesce(has_schema_privilege(current_schema(), 'create'), false) as may_create"""
_LISTED = text("select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, :prefix)")


class PostgresParticipant(DatabaseParticipant):
    """One registered database."""

    driver = ("psycopg", "postgresql+psycopg")
    capabilities = CAPABILITIES[ResourceKind.POSTGRESQL]
    is_cancelled = staticmethod(is_cancelled)

    def probe(self) -> None:
        """Raise `ConfigError` unless the server supports prepared transactions; write nothing."""
        with reached(self.name, self._engine) as connection:
            able = connection.exec_driver_sql(_ABLE).one()
        if not able.prepares:
            raise errors.ConfigError(
                f"resource {self.name!r} can't vote: its server has max_prepared_transactions = 0; "
                "set it in postgresql.conf (100 for a start) and restart the server"
            )
        if able.reads_only:
            raise errors.ConfigError(
                f"resource {self.name!r} is read only or a standby; connect to the writable primary"
            )
        self._require_tables(may_create=able.may_create)

    def enlist(self, branch: BranchId) -> PostgresBranch:
        """Open a transaction for a branch; a stale pooled session is replaced before it begins."""
        return self._enlisted(branch, self._engine)

    def enlist_driver(self, branch: BranchId) -> PostgresBranch:
        """Open a transaction for a branch, with the driver's own connection as its handle."""
        return self._enlisted(branch, self._engine, _driver_of)

    def in_loop(self) -> PostgresLoopOpener:
        """Return the opener of branches whose sessions suspend only their task."""
        return PostgresLoopOpener(self._engine_of_loops("psycopg"), self._enlisted)

    def _enlisted(self, branch: BranchId, engine: Engine, shown: Shown = lambda it: it) -> PostgresBranch:
        texts = texts_in(self._engine.dialect, self._rows.place)
        try:
            session = self._begun(engine, shown, texts.mark(branch))
        except SessionLost:  # a stale session of the pool
            raise_if_cancelled()  # a cancelled task needs no other session
            try:
                session = self._begun(engine, shown, texts.mark(branch))
            except SessionLost as lost:
                raise errors.StoreUnavailable(f"resource {self.name!r} does not answer: {lost}") from lost
        return PostgresBranch(
            session, branch, texts, lambda decision: run_blocking(lambda: self.finish(branch, decision))
        )

    def _begun(self, engine: Engine, shown: Shown, marking: str) -> PostgresSession:
        with edge(self.name):
            connection = engine.connect()
            session = PostgresSession(connection, self._patience, shown(connection))
        return session.begin(marking)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, or find out how the branch was finished."""
        with self._reached() as connection:
            commit_each(connection)
            return self._finished(connection, branch, decision, lambda due: _end(connection, self.name, branch, due))

    def finish_many(self, due: Sequence[tuple[BranchId, Decision]]) -> Sequence[Finish | errors.TxSagaError]:
        """Do the same for many: read all rows at once, and send each decision before the previous one is answered."""
        with self._reached() as connection:
            commit_each(connection)
            before = self._rows.committed(connection, [branch for branch, _ in due])
            told = [Decision.ROLLBACK if branch in before else decision for branch, decision in due]
            named = [
                f"{decision.name} PREPARED '{branch.gid}'" for (branch, _), decision in zip(due, told, strict=True)
            ]
            answers = self._asked_each(connection, named)
            gone = [branch for (branch, _), answer in zip(due, answers, strict=True) if answer.state == codes.GONE]
            behind = before | self._rows.committed(connection, gone)
        return [
            self._found(branch, decision, answer, committed=branch in (before if not answer.state else behind))
            for (branch, decision), answer in zip(due, answers, strict=True)
        ]

    def _asked_each(self, connection: Connection, statements: Sequence[str]) -> Sequence[ServerAnswer]:
        driver: Any = connection.connection.driver_connection
        try:
            return [
                answer
                for at in range(0, len(statements), AT_ONCE)
                for answer in ask_each(driver.pgconn, statements[at : at + AT_ONCE], self._patience)
            ]
        except SessionLost as lost:
            connection.invalidate()
            raise errors.StoreUnavailable(f"resource {self.name!r} does not answer: {lost}") from lost

    def _found(
        self, branch: BranchId, decision: Decision, answer: ServerAnswer, *, committed: bool
    ) -> Finish | errors.TxSagaError:
        if answer.state not in ("", codes.GONE):
            return _refusal(answer.state, self.name, branch) or errors.StoreError(f"branch {branch.gid}: {answer.why}")
        if not committed and not answer.state:
            return Finish.DONE
        return finish_of(decision, committed=committed)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return the branches that this database holds for a store."""
        place = self._rows.place
        with self._reached() as connection:
            self._rows.where.require_same(connection, place)
            listed = connection.scalars(_LISTED, {"prefix": f"{PREFIX}:{store}-"}).all()
        return [branch for gid in listed for branch in ours(gid)]

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute journalled statements in an open branch, none of which waits for a lock for long."""
        cast(PostgresBranch, session).limit_waits(LONGEST)
        super().do(session, statements)

    def mark(self, session: EnlistedBranch) -> str:
        """Return nothing: the branch's own name is enough."""
        return ""

    def look(self) -> PostgresLockView:
        """Open a view of the lock waits."""
        return PostgresLockView(self._engine, self.name)


class PostgresLoopOpener(LoopOpener):
    """The opener of branches in PostgreSQL."""

    def enlist_driver(self, branch: BranchId) -> EnlistedBranch:
        """Open a transaction for a branch, with the driver's own connection as its handle."""
        return self._enlisted(branch, self._engine.sync_engine, _driver_of)


def _driver_of(connection: Connection) -> object:
    return connection.connection.driver_connection


def _end(connection: Connection, resource: str, branch: BranchId, decision: Decision) -> bool:
    """Finish the prepared transaction of a name; return whether there was one."""
    try:
        connection.exec_driver_sql(f"{decision.name} PREPARED '{branch.gid}'").close()
    except DBAPIError as error:
        state = code_of(error)
        if state == codes.GONE:
            return False
        refusal = _refusal(str(state), resource, branch)
        if refusal is not None:
            raise refusal from error
        raise
    return True


def _refusal(state: str, resource: str, branch: BranchId) -> errors.TxSagaError | None:
    """Return the error for a prepared transaction that could not be finished."""
    match state:
        case codes.BUSY:
            return errors.RetryLater(f"branch {branch.gid} is being finished by another session of {resource!r}")
        case "0A000":
            return errors.EvidenceMissing(f"branch {branch.gid} was prepared in another database than {resource!r}")
        case "25006":
            return errors.NotPrimary(f"SLAVE_NOT_AVAILABLE: resource {resource!r} is a standby; connect to the primary")
        case "42501":
            return errors.RightsMissing(
                f"only the user that prepared branch {branch.gid}, or a superuser, can finish it in {resource!r}"
            )
    return None
