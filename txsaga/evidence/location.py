"""Finds our tables in a user's database, and creates them where that is allowed.

Many processes may start at once: the statements keep existing objects, and on PostgreSQL, whose
`create table if not exists` fails in a race, a lock serializes them. If creation stops half way, the next use finds a
table or the uuid missing and runs everything again.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, inspect, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, EvidenceMissing
from txsaga.evidence.driver_errors import is_absent, is_blocked, is_forbidden, reached
from txsaga.evidence.schema import (
    DATABASE,
    EVIDENCE,
    INBOX,
    MAIN,
    EvidenceKey,
    database_table,
    evidence_table,
    statements,
)
from txsaga.evidence.sessions import begin_now, settle_level
from txsaga.evidence.statements import write_now

_SCHEMAS = {"mysql": "select database()", "mariadb": "select database()"}
_IN_POSTGRESQL = f"""select to_regclass('{DATABASE}') is not null as known, (
      select nspname from pg_class join pg_namespace n on n.oid = relnamespace
      where pg_class.oid = to_regclass('{EVIDENCE}')) as schema"""
_ONE_BY_ONE = "select pg_advisory_xact_lock(8392571384871780718)"  # an arbitrary number used only here


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTables:
    """Where a database keeps its evidence."""

    database: UUID
    table: Table


def resource_name(engine: Engine) -> str:
    """Return a name for a database that was not given one."""
    return engine.url.database or engine.dialect.name


def create(engine: Engine, name: str | None = None) -> UUID:
    """Create the tables and the database's uuid unless they exist; return the uuid."""
    resource = name or resource_name(engine)
    place = find(engine, resource) if has_inbox(engine, resource) else None
    if place is None:
        _create(engine, resource)
        place = find(engine, resource)
    if place is None:
        raise missing(engine, resource)
    return place.database


def has_inbox(engine: Engine, resource: str) -> bool:
    """Return whether the inbox exists."""
    with reached(resource, engine) as connection:
        settle_level(connection)
        return sees_inbox(connection)


def sees_inbox(connection: Connection) -> bool:
    """Return whether this connection sees the inbox, whatever its transaction."""
    if connection.dialect.name != "postgresql":
        return connection.dialect.has_table(connection, INBOX)
    try:
        # By use, not from the catalogue: an older snapshot of the transaction would hide a new table.
        with connection.begin_nested():
            connection.exec_driver_sql(f"select from {INBOX} where false").close()
    except DBAPIError as error:
        if is_absent(error):
            return False
        raise
    return True


def find(engine: Engine, resource: str) -> EvidenceTables | None:
    """Find the evidence tables and the uuid; None if any of them is missing."""
    with reached(resource, engine) as connection:
        settle_level(connection)
        _refuse_memory(connection)
        there, schema = _looked(connection)
        if not there:
            return None
        uuid = connection.execute(select(database_table().c.uuid)).scalar_one_or_none()
        return EvidenceTables(database=UUID(hex=uuid), table=evidence_table(schema)) if uuid else None


def missing(engine: Engine, resource: str) -> EvidenceMissing:
    """Return the error that explains what to do when the tables can't be created here."""
    dialect = engine.dialect.name
    return EvidenceMissing(
        f"resource {resource!r} lacks a table of txsaga, and this login may not create it; have its owner run the SQL "
        f"of `txsaga barrier ddl {dialect}`"
    )


def _create(engine: Engine, resource: str) -> None:
    with reached(resource, engine) as connection:
        settle_level(connection)
        try:
            _run_statements(connection)
        except DBAPIError as error:
            if is_forbidden(error):
                raise missing(engine, resource) from error
            raise


def _run_statements(connection: Connection) -> None:
    begin_now(connection)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_ONE_BY_ONE)
    for statement in statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.commit()


def _looked(connection: Connection) -> tuple[bool, str | None]:
    """Return whether both tables exist, and their schema."""
    if connection.dialect.name == "postgresql":  # one query, where reflection needs one per table
        known, schema = connection.exec_driver_sql(_IN_POSTGRESQL).one()
        return known and schema is not None, schema
    tables = inspect(connection)
    if not (tables.has_table(DATABASE) and tables.has_table(EVIDENCE)):
        return False, None
    question = _SCHEMAS.get(connection.dialect.name)
    return True, None if question is None else str(connection.exec_driver_sql(question).scalar_one())


def _refuse_memory(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        files = {row.name: row.file for row in connection.exec_driver_sql("PRAGMA database_list")}
        if not files["main"]:
            raise ConfigError("evidence must survive the process: use a SQLite file, not a database in memory")


class EvidenceLocation:
    """The evidence tables in the database of an engine; they are created where that is allowed."""

    def __init__(self, engine: Engine, name: str, *, create: bool = True, database: UUID | None = None) -> None:
        self.may_create = create
        self._engine = engine
        self._name = name
        self._pinned = database
        self._found: EvidenceTables | None = None

    @property
    def place(self) -> EvidenceTables:
        """The tables and the uuid of their database."""
        found = self._found  # another thread may reset it meanwhile
        if found is None:
            found = self._found = self._agreed(find(self._engine, self._name) or self._created())
        return found

    def look(self) -> bool:
        """Return whether the tables exist; create nothing."""
        if self._found is None and (found := find(self._engine, self._name)) is not None:
            self._found = self._agreed(found)
        return self._found is not None

    def require_same(self, connection: Connection, place: EvidenceTables) -> None:
        """Raise if the connection leads to another database than `place`."""
        self.refuse_other(connection.scalar(select(database_table(place.table.schema).c.uuid)), place)

    def write_barrier(
        self, connection: Connection, place: EvidenceTables, key: EvidenceKey, row: str = MAIN, *, keep: bool = True
    ) -> bool | None:
        """Commit the rollback barrier in place of a row; False if the row exists, None while it is being written.

        With `keep=False` the barrier is only tried, and nothing is left.
        """
        try:
            begin_now(connection)
            write_now(connection, place.table, key, Decision.ROLLBACK, row)
            self.require_same(connection, place)
            connection.commit() if keep else connection.rollback()
            return True
        except IntegrityError:
            connection.rollback()  # its outcome is final
            return False
        except DBAPIError as error:
            connection.rollback()
            if not is_blocked(error):
                raise
            return None

    def refuse_other(self, uuid: str | None, place: EvidenceTables) -> None:
        """Raise unless the uuid that came with an answer is that of `place`."""
        if uuid is None or UUID(hex=uuid) != place.database:
            self._found = None  # the next caller finds the tables again
            raise self._elsewhere()

    def _created(self) -> EvidenceTables:
        if self.may_create and self._pinned is None:  # a recorded database already had them
            create(self._engine, self._name)
        found = find(self._engine, self._name)
        if found is None:
            raise missing(self._engine, self._name)
        return found

    def _agreed(self, place: EvidenceTables) -> EvidenceTables:
        if self._pinned not in (None, place.database):
            raise self._elsewhere()
        return place

    def _elsewhere(self) -> EvidenceMissing:
        return EvidenceMissing(f"resource {self._name!r} points to another database than before")
