"""
PostgreSQL as a participant, through the user's own SQLAlchemy engine.

A branch is finished from any process that reaches the same database. What its prepared transactions no longer list
was finished by somebody, and the branch's own row tells how: the row is asked after the list, never before it, or a
commit between the two would look like a rollback. A prepared transaction whose row is there already is not the branch
but something that took its name: it is rolled back, whatever was decided (R9).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.evidence.answers import code_of, edge
from txsaga.adapters.evidence.creation import find, missing
from txsaga.adapters.evidence.schema import database_table
from txsaga.adapters.evidence.sessions import settle_level
from txsaga.adapters.evidence.statements import DURABLE
from txsaga.adapters.xa import codes
from txsaga.adapters.xa.libpq import SessionLost
from txsaga.adapters.xa.postgres_branch import ELSEWHERE, MARK, PostgresBranch
from txsaga.adapters.xa.postgres_session import Session
from txsaga.adapters.xa.rows import BranchRows, values
from txsaga.errors import (
    ConfigError,
    EvidenceMissing,
    NotPrimary,
    RightsMissing,
    StoreUnavailable,
    UnknownTransaction,
    xa,
)
from txsaga.model.branch import PREFIX, BranchId, Finish
from txsaga.model.capabilities import Capabilities, Kind, capabilities_of
from txsaga.model.decision import Decision

PATIENCE = 60.0
"""Seconds that a vote or its second phase may take: constraints that wait for the end are checked in them."""

_ABLE = """select current_setting('max_prepared_transactions')::int > 0 as prepares,
  pg_is_in_recovery() or current_setting('transaction_read_only')::bool as reads_only,
  coalesce(has_schema_privilege(current_schema(), 'create'), false) as may_create"""
_LISTED = text("select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, :prefix)")
# The key of the row waits for whoever holds the same name, and so may the constraints that are checked at PREPARE.
_EVIDENCE = """set local lock_timeout = '5s';
with written as (insert into {table} (store, incarnation, txid, branch, outcome)
  select '{store}', {incarnation}, {txid}, '{branch}', {outcome} / {here}
   where pg_current_xact_id_if_assigned() is not null
  returning 1)
select current_setting('{mark}', true), (select count(*) from written), {durable}"""


_MAIN = """insert into {table} (store, incarnation, txid, branch, outcome)
  values ('{store}', {incarnation}, {txid}, '', {outcome} / {here})"""
# An error in another database than the recorded one, and outside of the branch's own transaction.
_HERE = """(select case count(*) when 1 then 1 else ('{elsewhere}' || count(*))::int end
   from {places} where uuid = '{uuid}' and current_setting('{mark}', true) = '{gid}')"""


class PostgresParticipant:
    """One registered database."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        create: bool = True,
        database: UUID | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if engine.dialect.driver != "psycopg":
            raise ConfigError(
                f"resource {name!r} can't vote through {engine.dialect.driver}; "
                "open its engine with postgresql+psycopg://…"
            )
        self.name = name
        self._engine = engine
        self._may_create = create
        self._rows = BranchRows(engine, name, create=create, database=database)
        self._patience = patience

    @property
    def capabilities(self) -> Capabilities:
        """What PostgreSQL can do."""
        return capabilities_of(Kind.POSTGRESQL)

    @property
    def database(self) -> UUID:
        """The uuid that this very database carries."""
        return self._rows.place.database

    def probe(self) -> None:
        """Raise `ConfigError` unless the server holds prepared transactions; nothing is written."""
        with edge(self.name), self._engine.connect() as connection:
            able = connection.exec_driver_sql(_ABLE).one()
        if not able.prepares:
            raise ConfigError(
                f"resource {self.name!r} can't vote: its server has max_prepared_transactions = 0; "
                "set it in postgresql.conf (100 for a start) and restart the server"
            )
        if able.reads_only:
            raise ConfigError(f"resource {self.name!r} is read only or a standby; connect to the writable primary")
        if find(self._engine, self.name) is None and not (self._may_create and able.may_create):
            raise missing(self._engine, self.name)

    def enlist(self, branch: BranchId) -> PostgresBranch:
        """Open a transaction for a branch; a session that the pool kept too long is replaced before it begins."""
        evidence, main = self._evidence(branch)
        try:
            session = self._begun(branch)
        except SessionLost:
            try:
                session = self._begun(branch)
            except SessionLost as lost:
                raise StoreUnavailable(f"resource {self.name!r} does not answer: {lost}") from lost
        return PostgresBranch(session, branch, (evidence, main), lambda decision: self.finish(branch, decision))

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Do what was decided, or find out who did what."""
        with edge(self.name), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            if self._rows.is_committed(connection, branch):
                _end(connection, self.name, branch, Decision.ROLLBACK)  # what took the branch's name
                return Finish.DONE if decision is Decision.COMMIT else Finish.COMMITTED
            if _end(connection, self.name, branch, decision):
                return Finish.DONE
            if self._rows.is_committed(connection, branch) == (decision is Decision.COMMIT):
                return Finish.DONE
            return Finish.ROLLED_BACK if decision is Decision.COMMIT else Finish.COMMITTED

    def fence(self, branch: BranchId) -> Finish:
        """Make sure that no commit of it is under way, or late."""
        with edge(self.name), self._engine.connect() as connection:
            settle_level(connection)
            return self._rows.fence(connection, branch)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return the branches that this very database holds for a store."""
        place = self._rows.place
        with edge(self.name), self._engine.connect() as connection:
            self._rows.where.require_same(connection, place)
            found = connection.scalars(_LISTED, {"prefix": f"{PREFIX}:{store}-"}).all()
        return [branch for gid in found for branch in _ours(gid)]

    def forget(self, branch: BranchId) -> None:
        """Delete the row of a finished branch."""
        with edge(self.name), self._engine.begin() as connection:
            self._rows.drop(connection, branch)

    def close(self) -> None:
        """Nothing was opened here: the engine is the user's."""

    def _begun(self, branch: BranchId) -> Session:
        with edge(self.name):
            connection = self._engine.connect()
        return Session.begun(connection, f"SET LOCAL {MARK} = '{branch.gid}'", self._patience)

    def _evidence(self, branch: BranchId) -> tuple[str, str]:
        quoted, place = self._engine.dialect.identifier_preparer, self._rows.place
        places = quoted.format_table(database_table(place.table.schema))
        here = _HERE.format(elsewhere=ELSEWHERE, places=places, uuid=place.database.hex, mark=MARK, gid=branch.gid)
        named = {"table": quoted.format_table(place.table), "mark": MARK, "durable": DURABLE, "here": here}
        return _EVIDENCE.format(**named, **values(branch)), _MAIN.format(**named, **values(branch))


def _end(connection: Connection, resource: str, branch: BranchId, decision: Decision) -> bool:
    """Finish what is prepared under a name; tell whether there was such a thing."""
    try:
        connection.exec_driver_sql(f"{decision.name} PREPARED '{branch.gid}'").close()
    except DBAPIError as error:
        match code_of(error):
            case codes.GONE:
                return False
            case codes.BUSY:
                raise xa.RetryLater(
                    f"branch {branch.gid} is being finished by another session of {resource!r}"
                ) from error
            case "0A000":
                raise EvidenceMissing(
                    f"branch {branch.gid} was prepared in another database than {resource!r}"
                ) from error
            case "25006":
                raise NotPrimary(
                    f"SLAVE_NOT_AVAILABLE: resource {resource!r} is a standby; connect to the primary"
                ) from error
            case "42501":
                raise RightsMissing(
                    f"only the user that prepared branch {branch.gid}, or a superuser, can finish it in {resource!r}"
                ) from error
        raise
    return True


def _ours(gid: str) -> Sequence[BranchId]:
    try:
        return [BranchId.parse(gid)]
    except UnknownTransaction:
        return []  # somebody else's name
