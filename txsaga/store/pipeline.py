"""
A dedicated connection of the hot path: autocommit, all statements prepared, generic plans.

If a lost connection were taken for a "no", an acknowledged message could be stored twice or a decision
reported wrongly.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from sqlalchemy import Engine

from txsaga.core.failure import on_failure
from txsaga.core.fibers import current_fiber, run_blocking
from txsaga.core.forking import at_fork
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import ConfigError, StoreUnavailable
from txsaga.store.connection import is_lost, translated, translating
from txsaga.store.wire import Call, LibpqSession, Rows

STATEMENT_TIMEOUT = "5s"  # of the hot path; well below the minimum age of a check
NO_HURRY = "10min"  # for a statement that can't be split: cut off halfway, it would start again for ever
BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
THIS_BACKEND = "FROM pg_stat_activity WHERE pid = %(pid)s AND backend_start = %(started)s"

Answer = TypeVar("Answer")
Kept = TypeVar("Kept", bound="Closes")

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

    def execute(self, sql: str, parameters: Mapping[str, object]) -> list[Any]:
        """Run one statement in its own transaction; raise `ConnectionLost` if its outcome is unknown."""
        connection = self.connection()
        return self._guarded(lambda: connection.cursor(binary=True).execute(sql, parameters, prepare=True).fetchall())

    def exchange(self, calls: Sequence[Call], *, alone: bool = False) -> list[Rows]:
        """Run prepared statements in one transaction; return the rows of each. `alone`: no other caller waits."""
        if self._connection is None:
            self.connection()
        return self._guarded(lambda: self.wire.exchange(calls, alone=alone))

    def _guarded(self, exchanged: Callable[[], Answer]) -> Answer:
        try:
            return exchanged()
        except psycopg.Error as error:
            raise self._understood(error) from error
        except BaseException:
            self.close()  # interrupted: the next caller would read answers that are not its own
            raise

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open connection, opening one if there is none."""
        if self._connection is None:
            with translating():
                opened = run_blocking(self._open)
            self.wire = LibpqSession(opened)
            self._connection = opened
        return self._connection

    def session(self) -> object:
        """Return an object that identifies the session, a new one if the server closed it while idle.

        Nothing is sent then: an error raised here is a clear "no".
        """
        if self._connection is None:
            self.connection()
        elif self.wire.hung_up():
            self.close()
            patiently(self.connection, min(self.patience, PATIENCE))
        return self.wire

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


class Closes(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""


class Pool(Generic[Kept]):
    """A pool with one object per concurrent caller; the one returned last is lent first."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make, self._closed = make, False
        self._free: list[Kept] = []
        self._out: dict[int, tuple[AbstractEventLoop, Kept]] = {}  # lent within event loops

    @contextmanager
    def taken(self) -> Iterator[Kept]:
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


class ConnectionPool(Pool[PipelineConnection]):
    """A pool with one connection per concurrent caller."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(lambda: PipelineConnection(engine))

    def exchange(self, calls: Sequence[Call]) -> list[Rows]:
        """Run prepared statements in one transaction, on a free connection."""
        with self.taken() as line:
            return line.exchange(calls)


def until_answered(line: PipelineConnection, patience: float, ask: Callable[[], Answer]) -> Answer:
    """Run `ask`, which may be repeated; repeat it if the connection broke."""
    try:
        return ask()
    except ConnectionLost:
        patiently(line.connection, patience)
    try:
        return ask()
    except ConnectionLost as lost:
        raise StoreUnavailable(f"the home database did not answer: {lost}; retry") from lost


def _settle_plans(connection: psycopg.Connection[Any], timeout: str) -> None:
    connection.prepare_threshold = 0
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("SET enable_seqscan = off")  # plans made while a table is empty must fit a full one
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute(f"SET statement_timeout = '{timeout}'")
