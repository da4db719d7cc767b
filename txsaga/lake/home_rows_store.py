"""
Rows for tables of the home database: staged next to them, moved in by the commit of the decision itself.

Only the login that staged rows publishes them: under another login's rights a record could reach tables that its writer
may not. A process that stops anywhere here leaves a staging table that no reader uses; `collect` drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from sqlalchemy import URL, Engine, text

from txsaga.core.failure import on_failure
from txsaga.errors import ConfigError, TxSagaError, UnknownTransaction
from txsaga.lake import staging_tables
from txsaga.lake.home_rows import RowsWay, RowsWrite
from txsaga.lake.jdbc import jdbc_address
from txsaga.lake.table import Effect
from txsaga.messages.ledger_store import Ledger
from txsaga.store.connection import transaction as begun
from txsaga.store.partitions import is_dropped
from txsaga.store.store import Store

WRITERS = {"pyspark": "txsaga.spark.home_rows", "pyarrow": "txsaga.lake.arrow_rows"}
"""The modules that write rows of another library into a table, by that library's package."""


class Access(NamedTuple):
    """The access to the home database: for writers in Java, and for those in this process."""

    jdbc: Mapping[str, str]
    engine: Engine


class RowWriter(Protocol):
    """Writes rows of one kind."""

    def columns(self, rows: Any) -> list[str]:
        """Return the columns of the rows."""

    def write(self, rows: Any, staging: str, number: str, access: Access) -> None:
        """Write rows, each with a number, into an existing table."""


def writer_of(rows: object) -> RowWriter | None:
    """Load the writer for rows of this kind."""
    place = WRITERS.get(type(rows).__module__.partition(".")[0])
    return None if place is None else cast(RowWriter, import_module(place))


class Placing:
    """The rows of one transaction, ready to be moved to their tables."""

    def __init__(self, writes: Sequence[RowsWrite]) -> None:
        self._writes = sorted(writes, key=lambda write: write.target)  # in one order: two decisions never deadlock

    def apply(self, ledger: Ledger) -> None:
        """Move the rows in the decision's transaction."""
        assert isinstance(ledger, Ledger)
        for write in self._writes:
            staging_tables.place(ledger.connection, write)
        staging_tables.require_kept(ledger.connection, [write.target for write in self._writes])

    def drop(self) -> None:
        """Do nothing: nothing was made ready."""

    def done(self) -> None:
        """Do nothing: nothing was held."""


class PostgresHomeRows:
    """Stages rows and makes them ready: the port `HomeRows`, and the home effect of rows."""

    def __init__(self, store: Store, *, tcp: Callable[[], URL]) -> None:
        self._store, self._tcp = store, tcp

    def stage(self, table: str, rows: object, transaction: str, way: RowsWay) -> RowsWrite:
        """Write rows into a new table next to the target, and seal it."""
        writer = writer_of(rows)
        if writer is None:
            raise ConfigError(
                f"{type(rows).__name__} can't be written to {table}; give a DataFrame of Spark, or an Arrow table"
            )
        columns = writer.columns(rows)
        with begun(self._store.engine) as connection:
            target = staging_tables.find(connection, table, self._store.namespace)
            write = staging_tables.make(connection, target, columns, transaction, way)
        with on_failure(self._give_up, write.staging):
            writer.write(rows, write.staging, staging_tables.NUMBER, self._access())
            with begun(self._store.engine) as connection:
                return replace(write, rows=staging_tables.seal(connection, write))

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Placing:
        """Make the rows of one transaction ready."""
        return Placing([RowsWrite.read(effect.payload) for effect in effects])

    def collect(self, *, dry_run: bool = False) -> Sequence[str]:
        """Drop staged rows that will never be published."""
        with begun(self._store.engine) as connection:
            left = connection.execute(text(staging_tables.SQL["left"])).all()
        gone = [row.staging for row in left if self._is_nobodys(staging_tables.read_mark(row.said))]
        for staging in gone if not dry_run else ():
            self._drop(staging)
        return gone

    def _is_nobodys(self, said: dict[str, Any]) -> bool:
        """Return whether its transaction is decided (its partition is dropped only then): what counted is placed."""
        try:
            txid = self._store.registry.identity.own(str(said["transaction"]))
        except (UnknownTransaction, KeyError):
            return False
        with self._store.ledgers.open() as ledger:
            if ledger.standing(txid) is not None:
                return True
        with begun(self._store.engine) as connection:  # not read from `tx`, which hides the rows of other logins
            return is_dropped(connection, self._store.namespace, txid)

    def _give_up(self, staging: str) -> None:
        with suppress(TxSagaError):  # if this fails, it is collected later
            self._drop(staging)

    def _drop(self, staging: str) -> None:
        with begun(self._store.engine) as connection:
            staging_tables.run(connection, f"DROP TABLE IF EXISTS {staging}")

    def _access(self) -> Access:
        url = self._tcp()
        words = {"reWriteBatchedInserts": "true", "stringtype": "unspecified"}
        jdbc = {"url": jdbc_address(url, words), "user": url.username or "", "password": url.password or ""}
        return Access(jdbc, self._store.engine)
