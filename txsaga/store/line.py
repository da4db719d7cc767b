"""
A dedicated connection of the hot path: autocommit, everything prepared, generic plans.

If a lost connection were taken for a "no", an acknowledged message could be stored twice or a decision told
wrong.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from sqlalchemy import Engine

from txsaga.core.fibers import current_fiber, run_blocking
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import ConfigError, StoreUnavailable
from txsaga.store.connection import is_lost, translated, translating
from txsaga.store.wire import Call, LibpqSession, Rows

STATEMENT_TIMEOUT = "5s"  # of the hot path: well under the minimum age of a check
NO_HURRY = "10min"  # for a statement whose work can't be divided: stopped halfway it would be begun again for ever
BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
THIS_BACKEND = "FROM pg_stat_activity WHERE pid = %(pid)s AND backend_start = %(started)s"

Answer = TypeVar("Answer")
Kept = TypeVar("Kept", bound="Closes")

_open_lines: weakref.WeakSet[PipelineConnection] = weakref.WeakSet()
_parents: list[object] = []  # kept, since closing one would end the parent's session


def _leave_lines_to_parent() -> None:
    for line in list(_open_lines):
        line.leave_to_parent()


os.register_at_fork(after_in_child=_leave_lines_to_parent)


class ConnectionLost(Exception):
    """The connection broke during a statement: whether it was done is not known."""


class PipelineConnection:
    """One connection, for one caller at a time.

    A forked child leaves it to the parent and opens its own: two processes on one connection would read
    each other's answers.
    """

    def __init__(self, engine: Engine, patience: float = PATIENCE, *, timeout: str = STATEMENT_TIMEOUT) -> None:
        self._engine, self.patience, self._timeout = engine, patience, timeout
        self._connection: psycopg.Connection[Any] | None = None
        self._backend: tuple[int, object] | None = None
        self.wire: LibpqSession
        self._begun = False  # something is under way that nobody has committed
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
        self._leave_begun()
        connection = self.connection()
        try:
            cursor = connection.cursor(binary=True)
            return cursor.execute(sql, parameters, prepare=True).fetchall()
        except psycopg.Error as error:
            raise self._understood(error) from error
        except BaseException:
            self.close()  # as below
            raise

    def exchange(self, calls: Sequence[Call], *, alone: bool = False) -> list[Rows]:
        """Run prepared statements in one transaction; return the rows of each. Who is alone has nobody wait beside."""
        self.make_ready()
        return self._guarded(lambda: self.wire.exchange(calls, alone=alone))

    def _guarded(self, exchanged: Callable[[], Answer]) -> Answer:
        try:
            return exchanged()
        except psycopg.Error as error:
            raise self._understood(error) from error
        except BaseException:
            self.close()  # interrupted in the middle: what comes next on this connection belongs to nobody
            raise

    def begin(self, calls: Sequence[Call]) -> None:
        """Send prepared statements of one transaction, which `end` commits: the server begins with them."""
        self.make_ready()

        def begun() -> None:
            self._begun = True
            self.wire.begin(calls)
            self.wire.hand_over()

        self._guarded(begun)

    def end(self) -> list[Rows]:
        """Commit what was begun; return the rows of each statement."""
        self.conclude()
        return self.hear()

    def conclude(self, *more: Call) -> None:
        """Send the end of what was begun, behind some of its statements again with other values."""
        self._require_kept()

        def concluded() -> None:
            for call in more:
                self.wire.add(call)
            self.wire.conclude()

        self._guarded(concluded)

    def hear(self) -> list[Rows]:
        """Wait for the answers to what was concluded; return the rows of each statement."""
        self._require_kept()

        def heard() -> list[Rows]:
            answers = self.wire.answers()
            self._begun = False
            return self.wire.read(answers)

        return self._guarded(heard)

    def _require_kept(self) -> None:
        if self._connection is None:
            raise ConnectionLost("it was lost before")

    def make_ready(self, calls: Sequence[Call] = ()) -> None:
        """Have an open session in which nothing is under way, and these statements prepared."""
        self._leave_begun()
        if self._connection is None:
            self.connection()
        if calls:
            self._guarded(lambda: [self.wire.prepared(call) for call in calls])

    def _leave_begun(self) -> None:
        """Drop what somebody began and was interrupted in: the next statement would commit it."""
        if self._begun:
            self.close()

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open connection, opening one when there is none."""
        if self._connection is None:
            with translating():
                opened = run_blocking(self._open)
            self.wire = LibpqSession(opened)
            self._connection = opened
        return self._connection

    def session(self) -> object:
        """Return what stands for the session, a new one where the server left while nothing was under way.

        Nothing was sent then: whatever this raises is a clear no.
        """
        self._leave_begun()
        if self._connection is None:
            self.connection()
        elif self.wire.hung_up():
            self.close()
            patiently(self.connection, min(self.patience, PATIENCE))
        return self.wire

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        self._begun = False
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
        try:
            connection.autocommit = True
            self._end_lost_backend(connection)
            _settle_plans(connection, self._timeout)
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


class Closes(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Let it go."""


class LentConnection(Generic[Kept]):
    """As many of a kind as there are callers at the same time; the one that came back last is lent first."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make, self._closed = make, False
        self._free: list[Kept] = []
        self._out: dict[int, tuple[AbstractEventLoop, Kept]] = {}  # within loops

    @contextmanager
    def taken(self) -> Iterator[Kept]:
        """Lend one."""
        try:
            one = self._free.pop()
        except IndexError:  # asking first would not do: another thread may take the last one between
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
        """Close those that nobody has; the others when they come back."""
        self._closed = True
        self._take_back()
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _take_back(self) -> None:
        """Close what was lent to a loop that is closed: it never comes back."""
        for key, (loop, one) in list(self._out.items()):
            if loop.is_closed() and self._out.pop(key, None) is not None:
                one.close()


class ConnectionPool(LentConnection[PipelineConnection]):
    """As many lines as there are callers at the same time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(lambda: PipelineConnection(engine))

    def exchange(self, calls: Sequence[Call]) -> list[Rows]:
        """Run prepared statements in one transaction, on a line of its own."""
        with self.taken() as line:
            return line.exchange(calls)


def until_answered(line: PipelineConnection, patience: float, ask: Callable[[], Answer]) -> Answer:
    """Ask what may be asked twice, again when the connection broke."""
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
    connection.execute("SET enable_seqscan = off")  # plans made on a young, empty table must fit a full one
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute(f"SET statement_timeout = '{timeout}'")
