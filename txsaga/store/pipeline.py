"""
A dedicated connection of the hot path: autocommit, all statements prepared, generic plans.

Statements go straight to libpq: the driver's cursors cost as much per call as the server's insert. All calls of an
exchange are sent in one round trip; outside a transaction they are ONE implicit transaction. Within an event loop it
waits as a task does, and a cancellation takes effect after the answer.

If a lost connection were taken for a "no", an acknowledged message could be stored twice or a decision
reported wrongly.
"""

from __future__ import annotations

import asyncio
import select
import threading
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from sqlalchemy import Engine

from txsaga.aio.readable import is_readable
from txsaga.core.failure import on_failure
from txsaga.core.fibers import current_fiber, run_blocking
from txsaga.core.forking import at_fork
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import ConfigError, StoreUnavailable
from txsaga.evidence.libpq import flush
from txsaga.store.connection import is_lost, translated, translating
from txsaga.store.statement import StatementCall

Rows = Sequence[tuple[Any, ...]]
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class LibpqSession:
    """One session and the statements prepared in it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pgconn: PGconn = connection.pgconn
        self._reader = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)

    def hung_up(self) -> bool:
        """Return whether the server closed the session while idle: nothing unsent is in doubt."""
        try:
            while self._readable.poll(0):
                self._pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def exchange(self, calls: Sequence[StatementCall]) -> list[Rows]:
        """Run statements, each once the one before it succeeded; return the rows of each.

        A statement without a result gets a row with its count of affected rows.
        """
        if not calls:
            return []
        names = [self._prepared.get(call.sql) or self.prepare(call) for call in calls]
        if len(calls) > 1:
            self._pgconn.enter_pipeline_mode()
        for name, call in zip(names, calls, strict=True):
            self._pgconn.send_query_prepared(name, call.values, [1] * len(call.values), 1)
        if len(calls) > 1:
            self._pgconn.pipeline_sync()
        return [self._rows(result) for result in self._results(len(calls))]

    def prepare(self, call: StatementCall) -> bytes:
        """Prepare a call's statement in this session; return its name there."""
        name = b"txsaga_%d" % len(self._prepared)
        types = [0 if value is None else value.oid for value in call.values]
        self._pgconn.send_prepare(name, call.sql.encode(), types)
        self._results(1)
        self._prepared[call.sql] = name
        return name

    def _rows(self, result: PGresult) -> Rows:
        """Read all rows of an answer with the driver's loaders."""
        if result.status == ExecStatus.COMMAND_OK:
            return [(result.command_tuples,)]
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def _results(self, statements: int) -> list[PGresult]:
        """Wait for the results of statements; raise if one is an error. A lone one has a second if its COMMIT fails."""
        pgconn, results, fiber = self._pgconn, list[PGresult](), current_fiber()
        if pgconn.flush():
            flush(pgconn)
        while True:
            while pgconn.is_busy():
                if fiber is None:
                    self._readable.poll()
                else:
                    fiber.moment(is_readable(pgconn.socket))
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                results.append(result)
            elif result is not None or statements == 1 or pgconn.status == ConnStatus.BAD:
                break
        if statements > 1:
            pgconn.exit_pipeline_mode()
        for result in results:
            if result.status not in _DONE:
                raise _refusal(result)
        if len(results) < statements:
            raise psycopg.OperationalError("the session ended without an answer")
        return results


def _refusal(result: PGresult) -> psycopg.Error:
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    message = result.error_message.decode(errors="replace").strip()
    if not state:
        return psycopg.OperationalError(message)
    try:
        kind = psycopg.errors.lookup(state)
    except KeyError:  # a custom SQLSTATE, as a trigger may raise
        kind = psycopg.DatabaseError
    return kind(message)


STATEMENT_TIMEOUT = "5s"  # of the hot path; well below the minimum age of a check
NO_HURRY = "10min"  # for a statement that can't be split: cut off halfway, it would start again for ever
BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
THIS_BACKEND = "FROM pg_stat_activity WHERE pid = %(pid)s AND backend_start = %(started)s"


_open_lines: weakref.WeakSet[PipelineConnection] = weakref.WeakSet()
_parents: list[object] = []  # kept alive: closing one would end the parent's session


def _leave_lines_to_parent() -> None:
    for line in list(_open_lines):
        line.leave_to_parent()


at_fork(_leave_lines_to_parent)


class ConnectionLost(Exception):
    """The connection broke during a statement, whose outcome is unknown."""


class PipelineConnection:
    """One connection, for one caller at a time.

    A forked child leaves it to its parent and opens its own: two processes on one connection would read
    each other's answers.
    """

    def __init__(self, engine: Engine, patience: float = PATIENCE, *, timeout: str = STATEMENT_TIMEOUT) -> None:
        self._engine, self.patience, self._timeout = engine, patience, timeout
        self._connection: psycopg.Connection[Any] | None = None
        self._backend: tuple[int, object] | None = None
        self.wire: LibpqSession
        self.lock = threading.Lock()
        _open_lines.add(self)

    def leave_to_parent(self) -> None:
        """Drop the connection without sending anything to the server."""
        _parents.append(self._connection)
        self._connection = self._backend = None
        self.lock = threading.Lock()
        self._engine.dispose(close=False)

    def exchange(self, calls: Sequence[StatementCall]) -> list[Rows]:
        """Run prepared statements in one transaction; return the rows of each, or raise `ConnectionLost`."""
        if self._connection is None:
            self.connection()
        try:
            return self.wire.exchange(calls)
        except psycopg.Error as error:
            raise self._understood(error) from error
        except BaseException:
            self.close()  # interrupted: the next caller would read answers that are not its own
            raise

    def ask(self, question: StatementCall) -> Rows:
        """Run a query; again, if the connection broke."""
        try:
            return self.exchange([question])[0]
        except ConnectionLost:
            patiently(self.connection, self.patience)
        try:
            return self.exchange([question])[0]
        except ConnectionLost as lost:
            raise StoreUnavailable(f"the home database did not answer: {lost}; retry") from lost

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open connection, opening one if there is none."""
        if self._connection is None:
            with translating():
                opened = run_blocking(self._open)
            self.wire = LibpqSession(opened)
            self._connection = opened
        return self._connection

    def reopen(self) -> None:
        """Open it if it is closed, also by the server while idle.

        Nothing is sent before that: an error raised here is a clear "no".
        """
        if self._connection is None:
            self.connection()
        elif self.wire.hung_up():
            self.close()
            patiently(self.connection, min(self.patience, PATIENCE))

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

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
        with on_failure(connection.close):
            connection.autocommit = True
            self._end_lost_backend(connection)
            _settle_plans(connection, self._timeout)
        return connection

    def _end_lost_backend(self, connection: psycopg.Connection[Any]) -> None:
        """Ensure that the backend of a lost connection has stopped, then remember the new one."""
        if self._backend is not None:
            lost = dict(zip(("pid", "started"), self._backend, strict=True))
            connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {THIS_BACKEND}", lost)
            if connection.execute(f"SELECT 1 {THIS_BACKEND}", lost).fetchone() is not None:
                raise StoreUnavailable(f"backend {lost['pid']} works on a lost batch and can't be ended; retry")
        self._backend = connection.execute(BACKEND).fetchone()


class ConnectionPool:
    """A pool with one connection per concurrent caller; the one returned last is lent first."""

    def __init__(self, engine: Engine, patience: float = PATIENCE) -> None:
        self._make, self._closed = partial(PipelineConnection, engine, patience), False
        self._free: list[PipelineConnection] = []
        self._out: dict[int, tuple[AbstractEventLoop, PipelineConnection]] = {}  # lent within event loops

    def exchange(self, calls: Sequence[StatementCall]) -> list[Rows]:
        """Run prepared statements in one transaction, on a free connection."""
        with self.taken() as line:
            return line.exchange(calls)

    @contextmanager
    def taken(self) -> Iterator[PipelineConnection]:
        """Lend one to the block."""
        try:
            one = self._free.pop()
        except IndexError:  # not checked first: another thread may take the last one in between
            self._take_back()
            one = self._make()
        loop = None if current_fiber() is None else asyncio.get_running_loop()
        try:
            if loop is not None:
                self._out[id(one)] = loop, one
            yield one
        finally:
            self._out.pop(id(one), None)
            self._free.append(one)
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the free ones now, the others when they are returned."""
        self._closed = True
        self._take_back()
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _take_back(self) -> None:
        """Close those lent to an event loop that is closed: they are never returned."""
        for key, (loop, one) in list(self._out.items()):
            if loop.is_closed() and self._out.pop(key, None) is not None:
                one.close()


def _settle_plans(connection: psycopg.Connection[Any], timeout: str) -> None:
    connection.prepare_threshold = 0
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("SET enable_seqscan = off")  # plans made while a table is empty must fit a full one
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute(f"SET statement_timeout = '{timeout}'")
