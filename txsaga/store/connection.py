"""
Connections to the home database: the pool, transactions on it, and the meaning of errors.

Every connection sets `synchronous_commit = on`, overriding role and database: only what is on disk is acknowledged.
The driver's errors become ours here and nowhere else. If a lost connection were taken for a "no", an acknowledged
message could be stored twice or a decision reported wrongly.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Connection, CursorResult, Dialect, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from txsaga import errors
from txsaga.config import NAMESPACE
from txsaga.core.arguments import check_kind
from txsaga.core.redacting import redacted
from txsaga.core.topic import TopicChanges

FRESH = 1.5
"""Seconds since its last use within which a connection is not pinged, while its server is silent."""
USED = "txsaga_used"


def ping_idle(engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
    """Ping idle connections of a pool on checkout; a dead one makes the pool replace all of them."""

    def returned(connection: object, record: Any) -> None:
        record.info[USED] = clock()

    def taken(connection: Any, record: Any, proxy: object) -> None:
        used = record.info.get(USED)
        if used is None or (clock() - used < FRESH and not _was_told(connection)):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            if not engine.dialect.is_disconnect(error, connection, None):
                raise
            raise InvalidatePoolError("a pooled connection is dead") from error

    event.listen(engine, "checkin", returned)
    event.listen(engine, "checkout", taken)


def _was_told(connection: Any) -> bool:
    """Return whether the server sent something unasked."""
    if not hasattr(connection, "fileno"):
        return False
    heard = select.poll()
    heard.register(connection.fileno(), select.POLLIN)
    return bool(heard.poll(0))


SESSION = {
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "10min",
    "tcp_keepalives_idle": "10",  # on the server: if our host dies, its open transactions would block others
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
}
NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}
"""A silent connection is dropped before its callers stop retrying: else they would wait for hours."""
UNCOMPILED = "SET LOCAL jit = off"
"""For cheap plans with a high estimate: compiling one takes longer than running it."""
STOPPED = "SET LOCAL idle_in_transaction_session_timeout = '8s'"
SEVERAL = ("host", "port")
"""Options that a URL may have more than once."""
LOST_STATES = ("08", "57P")
_DELETED = re.compile(r"topic (\S+) is deleted")
_NOT_LET_IN = re.compile(r"FATAL: .*(authentication failed|pg_hba\.conf|role .* does not exist)")
_WHERE = re.compile(r" (?:CONTEXT|LINE \d+): ")
_NO_DATABASE = re.compile(r"FATAL: .*database .* does not exist")
_BAD_OPTION = re.compile(r"invalid (connection option|URI|port number|\S+ value)|bad value for")
_TLS = re.compile(r"certificate verify failed|root certificate file|server certificate for|SSL was required")
_NOT_RUNNING = re.compile(r"Is the server running locally")
_NO_OPTIONS = re.compile(r"FATAL: .*unsupported startup parameter")
_NAMESPACE = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,40}")


def parse_url(text: str) -> tuple[URL, str]:
    """Split a URL into the driver's URL and the namespace."""
    check_kind(text, (str, URL), "the URL", "write postgresql://user:password@host:port/database")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise errors.ConfigError(
            f"{redacted(text)!r} is not a database URL; write postgresql://user:password@host:port/database"
        ) from None
    require_readable(url, "the URL")
    if url.get_backend_name() != "postgresql":
        raise errors.ConfigError(f"the home database is PostgreSQL; {url.get_backend_name()!r} can only be a resource")
    if not url.database:
        raise errors.ConfigError(f"{redacted(str(text))!r} names no database; add /database to the URL")
    if twice := sorted(name for name, value in url.query.items() if name not in SEVERAL and not isinstance(value, str)):
        raise errors.ConfigError(f"the URL gives {twice[0]} more than once; leave only one")
    namespace = str(url.query.get("namespace", NAMESPACE))
    if not _NAMESPACE.fullmatch(namespace):
        raise errors.ConfigError(
            f"namespace {namespace!r} is invalid; use 1 to 41 lower-case letters, digits and _ (not pg_…)"
        )
    url = url.difference_update_query(["namespace"]).set(drivername="postgresql+psycopg")
    return url, namespace


def require_readable(url: URL, what: str) -> None:
    """Raise `ConfigError` if part of a password was parsed as the host: errors of the driver would show it."""
    if "@" in f"{url.host}{url.database}":
        raise errors.ConfigError(f"{what} has an @ in its password; write it as %40, and / as %2F")


def session_name(namespace: str) -> str:
    """Return the application name of our sessions on a namespace."""
    return f"txsaga {namespace}"


def make_engine(url: URL, namespace: str) -> Engine:
    """Create the pool without opening a connection. Network options in the URL override `NETWORK`."""
    options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    network = {name: value for name, value in NETWORK.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            pool_size=10,
            max_overflow=40,
            use_native_hstore=False,  # not needed, and costs a query on each first connection
            connect_args={**network, "options": options, "application_name": session_name(namespace)},
        )
    except ArgumentError:
        raise errors.ConfigError("the hosts and ports of the URL do not fit; write one port for each host") from None
    ping_idle(engine)
    return engine.execution_options(schema_translate_map={None: namespace}, preserve_rowcount=True)


def follow(engine: Engine, address: Callable[[], str]) -> None:
    """Ask for the address again when a connection is refused: the server may need a start, or have moved."""

    def connect(dialect: Dialect, record: object, words: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return dialect.connect(*words, **options)
        except psycopg.OperationalError as refused:
            try:
                found = dialect.create_connect_args(parse_url(address())[0])[1]
                connected = dialect.connect(*words, **{**options, **found})
            except errors.StoreError as reason:
                raise errors.StoreUnavailable(str(reason)) from refused
            except psycopg.OperationalError:
                raise refused from None
            options.update(found)  # for later connections too
            return connected

    event.listen(engine, "do_connect", connect)


def is_lost(error: BaseException) -> bool:
    """Return whether an error leaves open what the server did."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_lost(error.orig))
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (state is None or state.startswith(LOST_STATES))


def translated(error: BaseException) -> errors.TxSagaError:
    """Return our error for one of the driver."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(origin, "sqlstate", None) or ""
    detail = " ".join(str(origin).split())
    if state == "25006":
        return errors.NotPrimary(
            "SLAVE_NOT_AVAILABLE: this server is a standby, or your transaction is READ ONLY; "
            "connect to the writable primary, or begin a transaction that may write"
        )
    if state == "23001" and (deleted := _DELETED.search(detail)):
        TopicChanges.count += 1
        return errors.UnknownTopic(deleted[1], "was deleted, or replaced by one of another type: send again, or")
    if state == "42501":
        told = _WHERE.split(detail)[0].removeprefix("ERROR: ")
        return errors.RightsMissing(f"{told}; grant the right (`txsaga db grant`) or connect as another user")
    if state in ("42P01", "3F000", "42703"):
        return errors.SchemaMissing(f"{detail}; run `txsaga db migrate`")
    if state == "53100":
        return errors.StoreError(f"the disk of the home database is full: {detail}; make room, nothing was stored")
    if state == "23514" and "no partition of relation" in detail:
        return errors.StoreError(
            f"{detail}; run `txsaga engine`, it makes room for more transactions; nothing was stored"
        )
    if not state and (turned_away := _turned_away(detail)) is not None:
        return turned_away
    if state == "55P03":
        return errors.StoreUnavailable(f"another session has held a needed lock for too long: {detail}; retry later")
    if state == "0A000" and "used by a view" in detail:
        return errors.StoreError(f"{detail}; drop that view, run `txsaga db migrate`, and create it again")
    if state == "0A000" and "cached plan" in detail:
        return errors.StoreError("a table was changed under this program; start it again")
    if not state and _NOT_RUNNING.search(detail):
        return errors.StoreUnavailable(
            f"the home database did not answer: {detail} `txsaga db start` starts an embedded one"
        )
    if is_lost(error) or state[:2] in ("53", "40") or state == "57014":
        return errors.StoreUnavailable(f"the home database did not answer: {detail}; retry")
    return errors.StoreError(detail)


def _turned_away(detail: str) -> errors.TxSagaError | None:
    """Return our error for a connection refused without an SQLSTATE, where a retry would not help."""
    if _NOT_LET_IN.search(detail):
        return errors.RightsMissing(f"{detail}; correct the user or the password in the URL")
    if _NO_DATABASE.search(detail):
        return errors.ConfigError(f"{detail}; create the database or correct the URL")
    if _TLS.search(detail):
        return errors.ConfigError(f"{detail}; correct sslmode and sslrootcert in the URL")
    if _NO_OPTIONS.search(detail):
        return errors.ConfigError(f"{detail}; connect to the server itself, a pooler keeps our session settings away")
    if _BAD_OPTION.search(detail):
        return errors.ConfigError(f"the URL can't be used: {detail}")
    return None


class translating:  # a class: it is entered once per statement
    """Replace the errors of driver and pool by ours."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PoolTimeout):
            raise errors.StoreBusy(
                "every connection to the home database is in use; leave a cut or a block before the next, or retry"
            ) from error
        if isinstance(error, DBAPIError | psycopg.Error):
            if (interrupt := _covered_interrupt(error)) is not None:
                raise interrupt from None
            raise translated(error) from error


def _covered_interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that came during a ping: an error of the driver's clean-up hides it."""
    covered: BaseException | None = error
    while covered is not None and not isinstance(covered, KeyboardInterrupt):
        covered = covered.__context__
    return covered


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction; an unanswered COMMIT raises `OutcomeUnknown`: it is no "no"."""
    with translating(), closing(engine.connect()) as connection:
        try:
            yield connection
            _commit(connection)
        finally:
            _roll_back(connection)  # nothing, if it was committed


@contextmanager
def by_index(engine: Engine) -> Iterator[Connection]:
    """Open a transaction whose statements use indexes, even if they were planned on empty tables.

    A plan is kept per session: one made while a table was empty would scan all of it once it is full. A process
    that stalls in here loses its locks before its lease as leader is over: otherwise no other could take over.
    """
    with transaction(engine) as connection:
        connection.exec_driver_sql(f"SET LOCAL enable_seqscan = off; {UNCOMPILED}; {STOPPED}").close()
        yield connection


def _roll_back(connection: Connection) -> None:
    if not connection.invalidated:
        try:
            connection.rollback()
        except DBAPIError as lost:
            connection.invalidate(lost)  # the server rolls back what a lost session left open


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DBAPIError as error:
        if is_lost(error):
            raise errors.OutcomeUnknown("the connection broke at COMMIT; it is unknown whether it was done") from error
        raise translated(error) from error


class HomeTransaction:
    """One open database transaction on a (quoted) namespace, for the statements of SQL files."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection, self._schema = connection, schema

    def _run(self, sql: str, **values: object) -> CursorResult[*tuple[Any, ...]]:
        return self._connection.execute(_statement(sql, self._schema), values)


_statement = lru_cache(1024)(lambda sql, schema: text(sql.format(s=schema)))  # parsed once
Run = Callable[..., CursorResult[*tuple[Any, ...]]]
"""Runs a statement of an SQL file, with values by name, in an open database transaction."""


class NamespaceStore:
    """One (unquoted) namespace, for the statements of SQL files; a call of a store is one database transaction."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'

    @contextmanager
    def _open(self, way: Callable[[Engine], AbstractContextManager[Connection]] = transaction) -> Iterator[Run]:
        with way(self._engine) as connection:
            yield HomeTransaction(connection, self._schema)._run

    def _rows(self, sql: str, **values: object) -> Sequence[Any]:
        with self._open() as run:
            return run(sql, **values).all()

    def _row(self, sql: str, **values: object) -> Any:
        return next(iter(self._rows(sql, **values)), None)

    def _changed(self, sql: str, **values: object) -> int:
        with self._open() as run:
            return run(sql, **values).rowcount
