"""The evidence of one registered database, through the user's SQLAlchemy engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Connection, Engine, QueuePool, Row, Table, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga.config import RESOURCE
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.records import EvidenceOutcome
from txsaga.errors import ConfigError, DecidedOtherwise, EvidenceMissing
from txsaga.evidence import begin_with_evidence, statements
from txsaga.evidence.driver_errors import edge, is_absent, reached
from txsaga.evidence.local_transaction import Announce, committing, in_its_process, mark_work
from txsaga.evidence.location import EvidenceLocation, resource_name
from txsaga.evidence.schema import MAIN, EvidenceKey, database_table, ddl
from txsaga.evidence.sessions import PLAIN, begin_now, leave_autocommit, limit, settle_level, short_waits
from txsaga.evidence.statements import SLOT
from txsaga.evidence.steps import SqlSteps

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def outcomes(rows: Iterable[Row[*tuple[Any, ...]]]) -> dict[EvidenceKey, EvidenceOutcome]:
    """Return the outcome of each transaction whose main row is among these, with its late bodies.

    Rows of two-phase commit branches are in the same table and are ignored here.
    """
    standing: dict[EvidenceKey, Decision] = {}
    bodies: dict[EvidenceKey, dict[int, bytes]] = defaultdict(dict)
    for store, incarnation, txid, branch, outcome, body in rows:
        key = EvidenceKey(store, incarnation, txid)
        if branch == MAIN:
            standing[key] = Decision(outcome)
        elif branch.startswith(SLOT):
            bodies[key][int(branch.removeprefix(SLOT))] = bytes(body)
    return {key: EvidenceOutcome(said is Decision.COMMIT, bodies.get(key, {})) for key, said in standing.items()}


def slots(branches: Iterable[str]) -> frozenset[int]:
    """Return the slot numbers among these branches."""
    return frozenset(int(branch.removeprefix(SLOT)) for branch in branches if branch.startswith(SLOT))


_ASKED_AT_ONCE = 10_000  # servers limit the parameters of a statement
_FENCES = 4  # connections


def _nobody(done: bool) -> None:
    """Ignore the announcement."""


class SqlEvidence:
    """Evidence in PostgreSQL, MariaDB, MySQL or SQLite; connects on first use."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str | None = None,
        create: bool = True,
        loops: AsyncEngine | None = None,
        where: EvidenceLocation | None = None,
    ) -> None:
        ddl(engine.dialect.name)  # refuses other databases
        self._engine, self.loops = engine, loops
        self._name = name or resource_name(engine)
        self._where = where or EvidenceLocation(engine, self._name, create=create)
        self.steps = SqlSteps(engine, self._name, self._where)
        self._within: LoopEvidence | None = None

    def in_loop(self) -> SqlEvidence:
        """Return the same evidence for local work in an event loop; `ConfigError` without an async engine."""
        if self.loops is None:
            raise ConfigError(
                f"resource {self._name!r} is registered with an engine for threads; "
                "register it with create_async_engine(…) to work in it within an event loop"
            )
        if self._within is None:
            self._within = LoopEvidence(self.loops, self._name, self._where)
        return self._within

    @property
    def database(self) -> UUID:
        """The uuid stored in this database next to the evidence table."""
        return self._where.place.database

    @contextmanager
    def work(self, transaction: str, announce: Announce = _nobody) -> Iterator[Connection]:
        """Open a local transaction whose first write is its evidence row; leaving the block commits it."""
        key, table = EvidenceKey.parse(transaction), self._where.place.table
        connection = self._open()
        with in_its_process(connection):
            with edge(self._name):
                leave_autocommit(connection)
                opened = connection.begin()
                _write_first(connection, table, key)
                mark_work(connection)
            with committing(opened, transaction, lambda: statements.outcome_of(table, key), announce):
                yield self._shown(connection)

    def fill(self, connection: Connection, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body with the evidence, in the local transaction."""
        key = EvidenceKey.parse(transaction)
        connection.execute(statements.write_body(self._where.place.table, key, slot, body), execution_options=PLAIN)

    def filled(self, connection: Connection, transaction: str) -> frozenset[int]:
        """Return the slots whose bodies are stored in the local transaction."""
        key = EvidenceKey.parse(transaction)
        asked = statements.branches(self._where.place.table, key)
        return slots(connection.scalars(asked, execution_options=PLAIN))

    def read(self, transaction: str) -> EvidenceOutcome | None:
        """Return the recorded outcome; None if there is no evidence."""
        return self.read_many([transaction]).get(transaction)

    def read_many(self, transactions: Sequence[str]) -> dict[str, EvidenceOutcome]:
        """Return the recorded outcome of each transaction that has evidence, in one query."""
        keys = {transaction: EvidenceKey.parse(transaction) for transaction in transactions}
        asked, place = list(set(keys.values())), self._where.place
        found: dict[EvidenceKey, EvidenceOutcome] = {}
        with self._connected() as connection, short_waits(connection):
            self._where.require_same(connection, place)
            for start in range(0, len(asked), _ASKED_AT_ONCE):
                batch = asked[start : start + _ASKED_AT_ONCE]
                found |= outcomes(connection.execute(statements.look(place.table, batch)))
        return {transaction: found[key] for transaction, key in keys.items() if key in found}

    @property
    def at_once(self) -> int:
        """How many are fenced concurrently: several only on servers, and no more than the user's pool keeps open."""
        pool = self._engine.pool
        if self._engine.dialect.name == "sqlite" or not isinstance(pool, QueuePool):
            return 1
        return max(1, min(_FENCES, pool.size()))

    def fence(self, transaction: str) -> EvidenceOutcome | None:
        """Write the rollback barrier unless evidence exists, and return the recorded outcome; None while it runs."""
        key, place = EvidenceKey.parse(transaction), self._where.place
        with self._connected() as connection, short_waits(connection, locks=1):
            if self._where.write_barrier(connection, place, key):
                return EvidenceOutcome(committed=False, bodies={})
            limit(connection)
            self._where.require_same(connection, place)
            return outcomes(connection.execute(statements.look(place.table, [key]))).get(key)

    def _open(self) -> Connection:
        with edge(self._name):
            return self._engine.connect()

    def _shown(self, connection: Connection) -> Connection:
        return connection

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with reached(self._name, self._engine) as connection:
            settle_level(connection)
            yield connection


def _write_first(connection: Connection, table: Table, key: EvidenceKey) -> None:
    try:
        if not begin_with_evidence.begun_with(connection, table, key):
            begin_now(connection)
            statements.write_now(connection, table, key, Decision.COMMIT)
    except IntegrityError as error:
        connection.rollback()
        standing = connection.scalar(statements.outcome_of(table, key), execution_options=PLAIN)
        if standing is None:
            raise
        raise DecidedOtherwise(key.txid, Decision(standing).name) from error


class LoopEvidence(SqlEvidence):
    """Evidence for local work in an event loop: an AsyncEngine does the work, another engine reads the evidence."""

    def __init__(self, engine: AsyncEngine, name: str, where: EvidenceLocation) -> None:
        self._engine, self._name, self._where = engine.sync_engine, name, where
        self._asynchronous = engine
        self._agrees = False  # whether both engines lead to the same database

    def in_loop(self) -> SqlEvidence:
        """Return itself."""
        return self

    def _shown(self, connection: Connection) -> Any:
        from sqlalchemy.ext.asyncio import AsyncConnection

        return AsyncConnection(self._asynchronous, connection)

    def fill(self, connection: Any, transaction: str, slot: int, body: bytes) -> None:
        """Store a late body with the evidence, in the local transaction."""
        super().fill(connection.sync_connection, transaction, slot, body)

    def filled(self, connection: Any, transaction: str) -> frozenset[int]:
        """Return the slots whose bodies are stored in the local transaction."""
        return super().filled(connection.sync_connection, transaction)

    def _open(self) -> Connection:
        connection = super()._open()
        if not self._agrees:
            with on_failure(connection.close), edge(self._name):
                self._require_same(connection)
                connection.rollback()
            self._agrees = True
        return connection

    def _require_same(self, connection: Connection) -> None:
        place, uuid = self._where.place, None
        try:
            asked = select(database_table(place.table.schema).c.uuid)
            uuid = connection.scalar(asked, execution_options=PLAIN)
        except DBAPIError as error:
            if not is_absent(error):
                raise
        if uuid is None or UUID(hex=uuid) != place.database:
            raise EvidenceMissing(
                f"the engine of {self._name!r} leads to another database than {RESOURCE}{self._name.upper()}, by which "
                "it is asked; let both lead to the same"
            )
