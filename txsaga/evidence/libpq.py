"""
Sends plain SQL text to PostgreSQL through libpq, with separate calls for sending and receiving.

This module must not interpret answers. If the process dies between the two calls, the server still runs what was sent.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from txsaga.aio.readable import readable_by
from txsaga.core.fibers import Fiber, current_fiber, run_blocking


class SessionLost(Exception):
    """The session ended or fell silent: the outcome of what was sent is unknown."""


class ServerSilent(SessionLost):
    """No answer came in time: the server may still be working on it."""


class ServerAnswer(NamedTuple):
    """The server's answer to one statement: its tag and the first row, or a definite error."""

    tag: str = ""
    row: Sequence[str | None] = ()
    state: str = ""  # the SQLSTATE of an error
    why: str = ""
    table: str = ""  # the table of a violated constraint


def hung_up(session: PGconn) -> bool:
    """Return whether the server closed the idle session: what is not sent yet is not in doubt."""
    if session.status == ConnStatus.BAD:
        return True
    readable = _poll(session, select.POLLIN)
    try:
        while readable.poll(0):
            session.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def begin(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> str:
    """Return the BEGIN the driver would send in a separate round trip."""
    words = ["BEGIN"]
    if driver.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(driver.isolation_level).name.replace('_', ' ')}")
    if driver.read_only is not None:
        words.append("READ ONLY" if driver.read_only else "READ WRITE")
    if driver.deferrable is not None:
        words.append("DEFERRABLE" if driver.deferrable else "NOT DEFERRABLE")
    return " ".join(words)


def send(session: PGconn, text: str, patience: float = math.inf) -> None:
    """Send statements in one round trip, waiting up to `patience` seconds until the server has accepted all of it."""
    try:
        session.send_query(text.encode())
        flush(session, patience)
    except psycopg.OperationalError as error:
        raise SessionLost(" ".join(str(error).split())) from error


def receive(
    session: PGconn, patience: float = math.inf, *, since: float | None = None, heard: bool = True
) -> Sequence[ServerAnswer]:
    """Wait up to `patience` seconds for the answer to each statement; a failed statement's answer is the last.

    The time counts from now, or from `since` on the monotonic clock: then waiting for several sessions that were asked
    together takes no longer than waiting for one.

    A cancelled task receives the answer first, unless `heard` is False or `patience` unlimited; unbroken work always
    does.
    """
    aside, late = current_fiber(), 0.0 if since is None else time.monotonic() - since
    try:
        if aside is not None:
            heard = aside.unbroken or (heard and patience < math.inf)
            return _arrived(session, patience, aside, late=late, heard=heard)
        return _received(session, patience, late)
    except psycopg.OperationalError as error:
        raise SessionLost(" ".join(str(error).split())) from error


def _received(session: PGconn, patience: float, late: float) -> Sequence[ServerAnswer]:
    readable, deadline, answers = None, 0.0, list[ServerAnswer]()
    while True:
        while session.is_busy():
            if readable is None:
                readable, deadline = _poll(session, select.POLLIN), time.monotonic() + patience - late
            if not readable.poll(_left(deadline)):
                raise ServerSilent(f"no answer for {patience:g} s")
            session.consume_input()
        result = session.get_result()
        if result is None:
            return answers
        answers.append(_answer(result))


def _arrived(session: PGconn, patience: float, aside: Fiber, *, late: float, heard: bool) -> Sequence[ServerAnswer]:
    """Wait in an event loop; if the answer must be received first, record the cancellation on the fiber."""
    answers, loop = list[ServerAnswer](), asyncio.get_running_loop()
    until = loop.time() + patience - late
    while True:
        if session.is_busy():
            try:
                readable = aside.wait(readable_by(loop, session.socket, until))
            except asyncio.CancelledError as cancelled:
                if not heard:
                    raise
                aside.cancelled = cancelled
                readable = loop.time() < until or bool(_poll(session, select.POLLIN).poll(0))
            if not readable:
                raise ServerSilent(f"no answer for {patience:g} s")
            session.consume_input()  # also if cancelled: a task cancelled in every turn never sees it ready
        elif (result := session.get_result()) is None:
            return answers
        else:
            answers.append(_answer(result))


def ask_each(session: PGconn, statements: Sequence[str], patience: float) -> Sequence[ServerAnswer]:
    """Run statements, each in its own transaction, all sent before the first answer arrives."""
    try:
        session.enter_pipeline_mode()
        for statement in statements:
            session.send_query_params(statement.encode(), None)
            session.pipeline_sync()
        flush(session, patience)
        answers = [_next(session, patience) for _ in statements]
        session.exit_pipeline_mode()
    except psycopg.OperationalError as error:
        raise SessionLost(" ".join(str(error).split())) from error
    return answers


def _next(session: PGconn, patience: float) -> ServerAnswer:
    """Wait for one answer of a pipeline and the end of its transaction."""
    readable, answer = _poll(session, select.POLLIN), None
    while True:
        while session.is_busy():
            if not readable.poll(patience * 1000):
                raise ServerSilent(f"no answer for {patience:g} s")
            session.consume_input()
        result = session.get_result()
        if result is None:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            assert answer is not None
            return answer
        answer = _answer(result)


def _answer(result: PGresult) -> ServerAnswer:
    status = result.status
    if status == ExecStatus.COMMAND_OK or (status == ExecStatus.TUPLES_OK and not result.ntuples):
        return ServerAnswer((result.command_status or b"").decode())
    if status == ExecStatus.TUPLES_OK:
        row = tuple([_text(result.get_value(0, column)) for column in range(result.nfields)])
        return ServerAnswer((result.command_status or b"").decode(), row)
    said = " ".join(result.error_message.decode(errors="replace").split())
    state = _text(result.error_field(DiagnosticField.SQLSTATE)) or ""
    # FATAL and PANIC end the session, possibly after the statement was done; an error without a state is libpq's own.
    if not state or _text(result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)) != "ERROR":
        raise SessionLost(said)
    return ServerAnswer(state=state, why=said, table=_text(result.error_field(DiagnosticField.TABLE_NAME)) or "")


def flush(session: PGconn, patience: float = math.inf) -> None:
    """Send all pending data within `patience` seconds; in a loop a thread waits, as loops watch for reading only."""
    if session.flush():
        run_blocking(lambda: _flush_slowly(session, patience))


def _flush_slowly(session: PGconn, patience: float) -> None:
    ready, deadline = _poll(session, select.POLLIN | select.POLLOUT), time.monotonic() + patience
    while session.flush():
        if not ready.poll(_left(deadline)):
            raise ServerSilent(f"not all of it was taken within {patience:g} s")
        session.consume_input()  # the server may block until its output is read


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _left(deadline: float) -> float | None:
    return None if deadline == math.inf else max(0, deadline - time.monotonic()) * 1000


def _poll(session: PGconn, events: int) -> select.poll:
    poll = select.poll()
    poll.register(session.socket, events)
    return poll
