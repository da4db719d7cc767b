"""
Rows for tables of the home database: staged next to them, moved in by the commit of the decision itself.

A staging table is created like the target, sealed, moved into place, dropped. Its purpose is in its comment, which only
its owner can write: a record alone never makes a process touch a table. Only the login that staged rows publishes them:
under another login's rights a record could reach tables that its writer may not. A process that stops anywhere here
leaves a staging table that no reader uses; `collect` drops it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from secrets import token_hex
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlencode

from sqlalchemy import URL, Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from txsaga import errors
from txsaga.core.failure import on_failure
from txsaga.lake.home_rows import RowsMode, RowsWay, RowsWrite
from txsaga.lake.table import Effect
from txsaga.messages.ledger_store import Ledger
from txsaga.store import sql_files
from txsaga.store.connection import transaction as begun
from txsaga.store.partitions import is_dropped
from txsaga.store.store import Store

CARRIED = ("sslmode", "sslrootcert")
"""Options with the same meaning in JDBC."""


def jdbc_address(url: URL, words: Mapping[str, str]) -> str:
    """Return an address without user and password, with these options of the driver and the URL's TLS options.

    Without those Java programs would not verify the server, and send the password in clear.
    """
    tls = {name: str(url.query[name]) for name in CARRIED if name in url.query}
    return f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}?{urlencode({**words, **tls}, safe='/')}"


PREFIX = "txsaga_staged_"
NUMBER, SEALED, BOUNDS = "txsaga_row", "txsaga_sealed", "txsaga_bounds"
FORBIDDEN = "42501"
PASSING = ("08", "25", "40", FORBIDDEN, "53", "55P03", "57", "58")
"""SQLSTATE prefixes of errors that a retry may avoid: of the server, of other sessions, of a missing right."""

SQL = sql_files.read("lake/sql/staging.sql")


class Target(NamedTuple):
    """A table as the server knows it."""

    oid: int
    schema: str
    name: str


def run(connection: Connection, sql: str) -> Any:
    """Run a statement literally."""
    return connection.exec_driver_sql(sql.replace("%", "%%"))


def find(connection: Connection, said: str, ours: str) -> Target:
    """Find a table by its name; txsaga's own are refused."""
    row = connection.execute(text(SQL["find"]), {"said": said}).one_or_none()
    if row is None or not row.is_table:
        raise errors.ConfigError(f"the home database has no table {said!r}; create it, or name its schema too")
    if row.schema == ours:
        raise errors.ConfigError(f"{said!r} is a table of txsaga's own; give one of yours")
    return Target(row.oid, row.schema, row.name)


def make(connection: Connection, target: Target, columns: Sequence[str], transaction: str, way: RowsWay) -> RowsWrite:
    """Make an empty staging table for these columns."""
    _require_columns(connection, target, columns, whole=way.mode is not RowsMode.INSERT)
    staging = f"{quoted(target.schema)}.{PREFIX}{token_hex(8)}"
    where: dict[str, Any] = {"target": target.name, "staging": staging, **way._asdict()}
    write = RowsWrite(transaction=transaction, columns=tuple(columns), **where)
    _create(connection, target, write)
    if way.mode is RowsMode.ATTACH:
        _try_attaching(connection, write)
    elif way.mode is RowsMode.REPLACE:
        _try_replacing(connection, write)
    else:
        _require_right(connection, target, write)
    run(connection, f"ALTER TABLE {staging} ADD COLUMN {NUMBER} bigint")
    run(connection, f"COMMENT ON TABLE {staging} IS {literal(json.dumps(write.mark()))}")
    return write


def read_mark(said: str | None) -> dict[str, Any]:
    """Read what a staging table's comment says; empty if it is not one of ours."""
    try:
        found = json.loads(said or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def seal(connection: Connection, write: RowsWrite) -> int:
    """Prevent further inserts; return the number of rows, after checking that none is there twice."""
    run(connection, f"ALTER TABLE {write.staging} ADD CONSTRAINT {SEALED} CHECK (false) NOT VALID")
    count, different = run(connection, f"SELECT count(*), count(DISTINCT {NUMBER}) FROM {write.staging}").one()
    if count != different:
        raise errors.ColumnsDiffer(
            f"a task wrote its rows for {write.target} twice: {count} rows, {different} different"
        )
    run(connection, f"ALTER TABLE {write.staging} DROP COLUMN {NUMBER}")
    return int(count)


def place(connection: Connection, write: RowsWrite) -> None:
    """Publish staged rows; raise `EffectConflict` if they don't fit, `InDoubt` if another login has to do it."""
    own = connection.execute(text(SQL["own"]), {"staging": write.staging}).one_or_none()
    if own is None:
        raise errors.EffectConflict(
            f"the rows staged for {write.target} are gone: {write.staging} was dropped; begin again"
        )
    if not own.ours:
        raise errors.InDoubt(f"rows for {write.target} were staged by another login: only that one can publish them")
    if read_mark(own.said) != write.mark():
        raise errors.EffectConflict(f"{write.staging} was not staged for this write; begin again")
    with _refused_as(_not_placed(write.target)):
        {RowsMode.INSERT: _insert, RowsMode.ATTACH: _attach, RowsMode.REPLACE: _replace}[write.mode](connection, write)


def _create(connection: Connection, target: Target, write: RowsWrite) -> None:
    like = "INCLUDING CONSTRAINTS" if write.mode is RowsMode.INSERT else "INCLUDING ALL EXCLUDING IDENTITY"
    run(connection, f"CREATE TABLE {write.staging} (LIKE {target.name} {like})")
    if write.mode is RowsMode.INSERT:
        others = [name for name, _ in _columns(connection, target) if name not in write.columns]
        for name in others:
            run(connection, f"ALTER TABLE {write.staging} DROP COLUMN {quoted(name)}")
    for role in connection.execute(text(SQL["granted"]), {"staging": write.staging}).scalars().all():
        run(connection, f"REVOKE ALL ON {write.staging} FROM {role}")  # by default privileges: none reads it yet


def _try_attaching(connection: Connection, write: RowsWrite) -> None:
    """Attach the empty table and undo that; its bounds are checked as rows are staged, not by the decision."""
    if not write.bounds.upper().startswith(("FOR VALUES", "DEFAULT")) or ";" in write.bounds:
        raise errors.ConfigError(f"{write.bounds!r} are not bounds of a partition; write them like FOR VALUES IN ('a')")
    with _refused_as(_not_this_way(write)), connection.begin_nested() as trial:
        run(connection, f"ALTER TABLE {write.target} ATTACH PARTITION {write.staging} {write.bounds}")
        query = f"SELECT pg_get_partition_constraintdef({literal(write.staging)}::regclass)"
        bounds = run(connection, query).scalar()
        trial.rollback()
    if bounds is not None:
        run(connection, f"ALTER TABLE {write.staging} ADD CONSTRAINT {BOUNDS} CHECK ({bounds})")


def _try_replacing(connection: Connection, write: RowsWrite) -> None:
    if lost := _lost(connection, write):
        raise errors.ConfigError(f"{write.target} has {lost}, which its replacement would lack; use insert")
    with _refused_as(_not_this_way(write)), connection.begin_nested() as trial:
        _swap(connection, write)
        trial.rollback()


def _insert(connection: Connection, write: RowsWrite) -> None:
    columns = ", ".join(map(quoted, write.columns))
    guarded = run(connection, SQL["guarded"].format(table=literal(write.target))).scalar_one()
    try:
        run(connection, f"INSERT INTO {write.target} ({columns}) SELECT {columns} FROM {write.staging}")
    except DBAPIError as error:
        if guarded and getattr(error.orig, "sqlstate", None) == FORBIDDEN:
            raise errors.EffectConflict(
                f"a policy of {write.target} refuses a row: {_line(error)}; begin again"
            ) from error
        raise
    run(connection, f"DROP TABLE {write.staging}")


def _attach(connection: Connection, write: RowsWrite) -> None:
    schema, name = write.staging.rpartition(".")[0], quoted(write.partition)
    run(connection, f"ALTER TABLE {write.staging} DROP CONSTRAINT {SEALED}")
    run(connection, f"COMMENT ON TABLE {write.staging} IS NULL")
    run(connection, f"ALTER TABLE {write.staging} RENAME TO {name}")
    run(connection, f"ALTER TABLE {write.target} ATTACH PARTITION {schema}.{name} {write.bounds}")
    run(connection, f"ALTER TABLE {schema}.{name} DROP CONSTRAINT IF EXISTS {BOUNDS}")


def _replace(connection: Connection, write: RowsWrite) -> None:
    run(connection, f"LOCK TABLE {write.target} IN ACCESS EXCLUSIVE MODE")
    run(connection, f"ALTER TABLE {write.staging} DROP CONSTRAINT {SEALED}")
    run(connection, f"COMMENT ON TABLE {write.staging} IS NULL")
    if lost := _lost(connection, write):
        raise errors.EffectConflict(
            f"{write.target} has {lost} since rows for it were staged, which lack it; begin again"
        )
    _swap(connection, write)


def _lost(connection: Connection, write: RowsWrite) -> str:
    values = {"target": write.target, "staging": write.staging}
    return ", ".join(connection.execute(text(SQL["lost"]), values).scalars())


def _swap(connection: Connection, write: RowsWrite) -> None:
    short = run(connection, f"SELECT quote_ident(relname) FROM pg_class WHERE oid = {literal(write.target)}::regclass")
    name, old = short.scalar_one(), f"{PREFIX}old_{token_hex(8)}"
    run(connection, f"ALTER TABLE {write.target} RENAME TO {old}")
    run(connection, f"ALTER TABLE {write.staging} RENAME TO {name}")
    run(connection, f"DROP TABLE {write.staging.rpartition('.')[0]}.{old}")


def _columns(connection: Connection, target: Target) -> list[tuple[str, bool]]:
    return [(row.attname, row.made) for row in connection.execute(text(SQL["columns"]), {"oid": target.oid})]


def _require_columns(connection: Connection, target: Target, given: Sequence[str], *, whole: bool) -> None:
    there = _columns(connection, target)
    wanted = [name for name, made in there if not made]
    if strange := sorted(set(given) - set(wanted)):
        raise errors.ColumnsDiffer(f"{target.name} takes no column {strange[0]!r}; it has {', '.join(wanted)}")
    if missing := [name for name in wanted if whole and name not in given]:
        raise errors.ColumnsDiffer(f"the rows for {target.name} lack column {missing[0]!r}; add it, as NULL if need be")


def _require_right(connection: Connection, target: Target, write: RowsWrite) -> None:
    values = {"oid": target.oid, "columns": list(write.columns)}
    if lacks := connection.execute(text(SQL["lacks"]), values).scalars().all():
        told = f"no right to INSERT {', '.join(lacks)} into {target.name}"
        raise errors.RightsMissing(f"{told}; grant the right or connect as another user")


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Quote an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def _not_placed(target: str) -> Callable[[str], errors.TxSagaError]:
    return lambda said: errors.EffectConflict(f"the rows for {target} can't be placed: {said}; begin again")


def _not_this_way(write: RowsWrite) -> Callable[[str], errors.TxSagaError]:
    return lambda said: errors.ConfigError(f"{write.target} can't take rows this way: {said}")


@contextmanager
def _refused_as(made: Callable[[str], errors.TxSagaError]) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if not state or state.startswith(PASSING):
            raise
        raise made(_line(error)) from error


def _line(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())


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
        for write in self._writes:
            place(ledger.connection, write)
        with _refused_as(_not_placed(", ".join(write.target for write in self._writes))):
            # Deferred constraints are checked now: at COMMIT a refusal would look like a failed decision.
            run(ledger.connection, "SET CONSTRAINTS ALL IMMEDIATE")

    def drop(self) -> None:
        """Do nothing: nothing was made ready."""

    def done(self) -> None:
        """Do nothing: nothing was held."""


class PostgresHomeRows:
    """Rows for the user's tables in the home database: staged, collected, and the home effect of them."""

    def __init__(self, store: Store, *, tcp: Callable[[], URL]) -> None:
        self._store, self._tcp = store, tcp

    def stage(self, table: str, rows: object, transaction: str, way: RowsWay) -> RowsWrite:
        """Write rows into a new table next to the target, and seal it against further rows."""
        writer = writer_of(rows)
        if writer is None:
            raise errors.ConfigError(
                f"{type(rows).__name__} can't be written to {table}; give a DataFrame of Spark, or an Arrow table"
            )
        columns = writer.columns(rows)
        with begun(self._store.engine) as connection:
            target = find(connection, table, self._store.namespace)
            write = make(connection, target, columns, transaction, way)
        with on_failure(self._give_up, write.staging):
            writer.write(rows, write.staging, NUMBER, self._access())
            with begun(self._store.engine) as connection:
                return replace(write, rows=seal(connection, write))

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Placing:
        """Make the rows of one transaction ready."""
        return Placing([RowsWrite.read(effect.payload) for effect in effects])

    def collect(self, *, dry_run: bool = False) -> Sequence[str]:
        """Drop staged rows that will never be published; return the table names."""
        with begun(self._store.engine) as connection:
            left = connection.execute(text(SQL["left"])).all()
        gone = [row.staging for row in left if self._is_nobodys(read_mark(row.said))]
        for staging in gone if not dry_run else ():
            self._drop(staging)
        return gone

    def _is_nobodys(self, said: dict[str, Any]) -> bool:
        """Return whether its transaction is decided (its partition is dropped only then): what counted is placed."""
        try:
            txid = self._store.registry.identity.own(str(said["transaction"]))
        except (errors.UnknownTransaction, KeyError):
            return False
        with self._store.ledgers.open() as ledger:
            if ledger.standing(txid) is not None:
                return True
        with begun(self._store.engine) as connection:  # not read from `tx`, which hides the rows of other logins
            return is_dropped(connection, self._store.namespace, txid)

    def _give_up(self, staging: str) -> None:
        with suppress(errors.TxSagaError):  # if this fails, it is collected later
            self._drop(staging)

    def _drop(self, staging: str) -> None:
        with begun(self._store.engine) as connection:
            run(connection, f"DROP TABLE IF EXISTS {staging}")

    def _access(self) -> Access:
        url = self._tcp()
        words = {"reWriteBatchedInserts": "true", "stringtype": "unspecified"}
        jdbc = {"url": jdbc_address(url, words), "user": url.username or "", "password": url.password or ""}
        return Access(jdbc, self._store.engine)
