"""
Prepared statements directly on libpq: the driver's cursors cost as much per call as the server's insert.

`exchange` sends all its calls in one round trip; outside a transaction they are ONE implicit transaction. Within an
event loop it waits as a task does, and a cancellation takes effect after the answer.
Errors are the driver's own; the owner of the connection knows what a broken one means.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from txsaga.aio.readable import is_readable
from txsaga.core.fibers import current_fiber
from txsaga.evidence.libpq import SpinWait, flush
from txsaga.store.values import Value

Rows = Sequence[tuple[Any, ...]]
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Call(NamedTuple):
    """A statement with the values of its numbered parameters."""

    sql: str
    values: Sequence[Value | None]


class LibpqSession:
    """One session and the statements prepared in it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pgconn: PGconn = connection.pgconn
        self._reader = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        self._lookout = SpinWait()

    def hung_up(self) -> bool:
        """Return whether the server closed the session while idle: nothing unsent is in doubt."""
        try:
            while self._readable.poll(0):
                self._pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def exchange(self, calls: Sequence[Call], *, alone: bool = False) -> list[Rows]:
        """Run statements, each once the one before it succeeded; return the rows of each.

        A statement without a result gets a row with its count of affected rows. `alone` polls for the answer.
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
        return [self._rows(result) for result in self._results(len(calls), alone=alone)]

    def prepare(self, call: Call) -> bytes:
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

    def _results(self, statements: int, *, alone: bool = False) -> list[PGresult]:
        """Wait for the results of statements; raise if one is an error. A lone one has a second if its COMMIT fails."""
        pgconn, results = self._pgconn, list[PGresult]()
        flush(pgconn)
        if alone and current_fiber() is None:
            self._lookout.look(self._readable)
        while True:
            if pgconn.is_busy():
                self._wait()
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

    def _wait(self) -> None:
        """Wait for the next result."""
        fiber = current_fiber()
        while self._pgconn.is_busy():
            if fiber is None:
                self._readable.poll()
            else:
                fiber.moment(is_readable(self._pgconn.socket))
            self._pgconn.consume_input()


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
