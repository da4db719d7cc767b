"""
A statement that the driver knows already, run past its cursors: they cost as much as the server's work.

The driver prepares it, since it alone knows how long that lasts: it drops all it prepared behind a rollback. So it is
asked for the name each time, and where it tells none, or the session is in the middle of something, its cursor is the
way. If a name were used that was dropped, somebody's transaction would fail.

A thread waits for the answer in one call: with many threads about, each step that gives the interpreter away costs a
turn. Nothing interrupts that call, so the main thread, which signals reach, goes by the cursor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from txsaga.adapters.evidence.libpq import flush
from txsaga.adapters.postgres.wire import require_success
from txsaga.adapters.readable import is_readable
from txsaga.engine.waiting import Aside, away

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Known(NamedTuple):
    """A statement as the driver keeps it: with numbers for values, and the types of these."""

    text: bytes
    types: tuple[int, ...]


def answer(driver: Driver, statement: Known, values: Sequence[bytes], aside: Aside | None) -> bytes | None:
    """Run a statement with values in binary form and return the first value of its answer; None if it was not run."""
    connection, name = driver.pgconn, _name(driver, statement)
    if name is None or connection.transaction_status != TransactionStatus.INTRANS:
        return None
    if connection.pipeline_status != PipelineStatus.OFF:
        return None
    if aside is not None:
        result = _waited(driver, name, values, aside)
    elif threading.current_thread() is threading.main_thread():
        return None
    else:
        result = connection.exec_prepared(name, values, [1] * len(values), 1)
    require_success(result)
    return result.get_value(0, 0)


def _name(driver: Driver, statement: Known) -> bytes | None:
    names = getattr(getattr(driver, "_prepared", None), "_names", None)
    return names.get(statement) if names is not None else None


def _waited(driver: Driver, name: bytes, values: Sequence[bytes], aside: Aside) -> PGresult:
    """Wait as a task does; one that is cancelled waits for nobody's lock any more."""
    connection, results = driver.pgconn, list[PGresult]()
    connection.send_query_prepared(name, values, [1] * len(values), 1)
    flush(connection)
    while True:
        while connection.is_busy():
            try:
                aside.wait(is_readable(connection.socket))
            except asyncio.CancelledError as cancelled:
                if aside.cancelled is None:
                    away(driver.cancel)
                aside.cancelled = cancelled
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            return results[0]
        results.append(result)
