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
        if len(calls) == 1:
            return self.read(self._single(*calls, alone=alone))
        self.begin(calls)
        self.conclude()
        return self.read(self.answers(alone=alone))

    def begin(self, calls: Sequence[Call]) -> None:
        """Send statements; the server works on them, and the effects stay invisible until `conclude`."""
        names = [self.prepared(call) for call in calls]
        self._pgconn.enter_pipeline_mode()
        for name, call in zip(names, calls, strict=True):
            self._pgconn.send_query_prepared(name, call.values, [1] * len(call.values), 1)

    def read(self, answers: Sequence[PGresult]) -> list[Rows]:
        """Return the rows of each statement; raise if one was refused."""
        for result in answers:
            _require_success(result)
        return [self._rows(result) for result in answers]

    def prepared(self, call: Call) -> bytes:
        """Return the name of a call's statement in this session, preparing it once."""
        name = self._prepared.get(call.sql)
        if name is None:
            name = b"txsaga_%d" % len(self._prepared)
            types = [0 if value is None else value.oid for value in call.values]
            self._pgconn.send_prepare(name, call.sql.encode(), types)
            for result in self._results():
                _require_success(result)
            self._prepared[call.sql] = name
        return name

    def _rows(self, result: PGresult) -> Rows:
        """Read all rows of an answer with the driver's loaders."""
        if result.status == ExecStatus.COMMAND_OK:
            return [(result.command_tuples,)]
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def _single(self, call: Call, *, alone: bool) -> list[PGresult]:
        """Run one statement without a pipeline; an error at its COMMIT comes after its own result."""
        self._pgconn.send_query_prepared(self.prepared(call), call.values, [1] * len(call.values), 1)
        return self._results(alone=alone)

    def _results(self, *, alone: bool = False) -> list[PGresult]:
        flush(self._pgconn)
        if alone and current_fiber() is None:
            self._lookout.look(self._readable)
        results = list[PGresult]()
        while (result := self._received()) is not None:
            results.append(result)
        if not results:
            raise psycopg.OperationalError("the session ended without an answer")
        return results

    def conclude(self) -> None:
        """Commit the begun transaction, if all of it succeeds."""
        self._pgconn.pipeline_sync()
        flush(self._pgconn)

    def answers(self, *, alone: bool = False) -> list[PGresult]:
        """Wait for the answers of the concluded transaction."""
        pgconn, results = self._pgconn, list[PGresult]()
        if alone and current_fiber() is None:
            self._lookout.look(self._readable)
        while True:
            result = self._received()
            if result is not None and result.status != ExecStatus.PIPELINE_SYNC:
                results.append(result)
            elif result is not None or pgconn.status == ConnStatus.BAD:
                break
        pgconn.exit_pipeline_mode()
        return results

    def _received(self) -> PGresult | None:
        """Wait for the next result; return None at the end of an answer."""
        while self._pgconn.is_busy():
            aside = current_fiber()
            if aside is None:
                self._readable.poll()
            else:
                aside.moment(is_readable(self._pgconn.socket))
            self._pgconn.consume_input()
        return self._pgconn.get_result()


def _require_success(result: PGresult) -> None:
    if result.status in _DONE:
        return
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    message = result.error_message.decode(errors="replace").strip()
    if not state:
        raise psycopg.OperationalError(message)
    try:
        kind = psycopg.errors.lookup(state)
    except KeyError:  # a custom SQLSTATE, as a trigger may raise
        kind = psycopg.DatabaseError
    raise kind(message)
