"""
A dedicated connection of the hot path: autocommit, everything prepared, generic plans.

`exchange` runs statements in ONE implicit transaction with one round trip, straight on libpq: the driver's
cursors cost as much per call as the server's insert. If a lost connection were taken for a "no", an
acknowledged message could be stored twice or a decision told wrong.
"""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from sqlalchemy import Engine

from txsaga.adapters.postgres import values
from txsaga.adapters.postgres.connection import is_lost, translated, translating
from txsaga.adapters.postgres.values import Value
from txsaga.errors import ConfigError, IdentityChanged, StoreUnavailable, TxSagaError

STATEMENT_TIMEOUT = "5s"  # of the hot path: well under the minimum age of a check
BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
THIS_BACKEND = "FROM pg_stat_activity WHERE pid = %(pid)s AND backend_start = %(started)s"

Answer = TypeVar("Answer")

_open_lines: weakref.WeakSet[Line] = weakref.WeakSet()
_parents: list[object] = []  # kept, since closing one would end the parent's session


def _leave_lines_to_parent() -> None:
    for line in list(_open_lines):
        line.leave_to_parent()


os.register_at_fork(after_in_child=_leave_lines_to_parent)


class ConnectionLost(Exception):
    """The connection broke during a statement: whether it was done is not known."""


class Call(NamedTuple):
    """A statement with its values, in the order of their numbers."""

    sql: str
    values: Sequence[Value | None]


class Line:
    """One connection, for one caller at a time.

    A forked child leaves it to the parent and opens its own: two processes on one connection would read
    each other's answers.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: psycopg.Connection[Any] | None = None
        self._backend: tuple[int, object] | None = None
        self._prepared: dict[str, bytes] = {}
        self.lock = threading.Lock()
        _open_lines.add(self)

    def leave_to_parent(self) -> None:
        """Forget the connection without a word to the server."""
        _parents.append(self._connection)
        self._connection = self._backend = None
        self.lock = threading.Lock()
        self._engine.dispose(close=False)

    def execute(self, sql: str, parameters: Mapping[str, object]) -> list[Any]:
        """Run one statement in its own transaction; `ConnectionLost` when its fate is not known."""
        connection = self.connection()
        try:
            cursor = connection.cursor(binary=True)
            return cursor.execute(sql, parameters, prepare=True).fetchall()
        except psycopg.Error as error:
            raise self._understood(error) from error

    def exchange(self, calls: Sequence[Call]) -> list[list[tuple[Any, ...]]]:
        """Run prepared statements in one transaction; return the rows of each."""
        pgconn = self.connection().pgconn
        try:
            return [values.rows(result) for result in self._run(pgconn, calls)]
        except psycopg.Error as error:
            raise self._understood(error) from error
        except BaseException:
            self.close()  # interrupted in the middle: what comes next on this connection belongs to nobody
            raise

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open connection, opening one when there is none."""
        if self._connection is None:
            self._prepared = {}
            with translating():
                self._connection = self._open()
        return self._connection

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def prepared(self, call: Call) -> bytes:
        """Return the name of a call's statement in this session, which prepares it once."""
        name = self._prepared.get(call.sql)
        if name is None:
            name = b"txsaga_%d" % len(self._prepared)
            types = [0 if value is None else value.oid for value in call.values]
            _require_success(self.connection().pgconn.prepare(name, call.sql.encode(), types))
            self._prepared[call.sql] = name
        return name

    def _run(self, pgconn: PGconn, calls: Sequence[Call]) -> list[PGresult]:
        names = [self.prepared(call) for call in calls]
        piped = len(calls) > 1
        if piped:
            pgconn.enter_pipeline_mode()
        for name, (_, given) in zip(names, calls, strict=True):
            pgconn.send_query_prepared(name, given, [1] * len(given), 1)
        if piped:
            pgconn.pipeline_sync()
        results = _received(pgconn, piped=piped)
        if piped:
            pgconn.exit_pipeline_mode()
        for result in results:
            _require_success(result)
        return results

    def _understood(self, error: psycopg.Error) -> Exception:
        if is_lost(error) or (self._connection is not None and self._connection.broken):
            self.close()
            return ConnectionLost(str(error))
        return translated(error)

    def _open(self) -> psycopg.Connection[Any]:
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        if not isinstance(connection, psycopg.Connection):
            raise ConfigError("the store needs the psycopg driver")
        try:
            connection.autocommit = True
            self._end_lost_backend(connection)
            _settle_plans(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _end_lost_backend(self, connection: psycopg.Connection[Any]) -> None:
        """Make sure that the backend of a lost connection does not work on, then remember the new one."""
        if self._backend is not None:
            lost = dict(zip(("pid", "started"), self._backend, strict=True))
            connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {THIS_BACKEND}", lost)
            if connection.execute(f"SELECT 1 {THIS_BACKEND}", lost).fetchone() is not None:
                raise StoreUnavailable(f"backend {lost['pid']} works on a lost batch and can't be ended; retry")
        self._backend = connection.execute(BACKEND).fetchone()


def reconnected(line: Line, patience: float) -> None:
    """Open the line again, waiting for the server to come back (it may turn clients away meanwhile)."""
    end, pause = time.monotonic() + patience, 0.05
    while True:
        try:
            line.connection()
            return
        except (TxSagaError, psycopg.Error) as reason:
            line.close()
            if time.monotonic() > end or isinstance(reason, IdentityChanged):
                raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def until_answered(line: Line, patience: float, ask: Callable[[], Answer]) -> Answer:
    """Ask what may be asked twice, again when the connection broke."""
    try:
        return ask()
    except ConnectionLost:
        reconnected(line, patience)
    try:
        return ask()
    except ConnectionLost as lost:
        raise StoreUnavailable(f"the home database did not answer: {lost}; retry") from lost


def _settle_plans(connection: psycopg.Connection[Any]) -> None:
    connection.prepare_threshold = 0
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("SET enable_seqscan = off")  # plans made on a young, empty table must fit a full one
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'")


def _received(pgconn: PGconn, *, piped: bool) -> list[PGresult]:
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
    while pgconn.flush():
        poll.poll()
        pgconn.consume_input()
    poll.modify(pgconn.socket, select.POLLIN)
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            poll.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is not None and result.status != ExecStatus.PIPELINE_SYNC:
            results.append(result)
        elif result is not None or not piped or pgconn.status == ConnStatus.BAD:
            return results


def _require_success(result: PGresult) -> None:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        message = result.error_message.decode(errors="replace").strip()
        raise psycopg.errors.lookup(state)(message) if state else psycopg.OperationalError(message)
