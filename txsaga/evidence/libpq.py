"""
Plain text straight to PostgreSQL, where what is sent and what is waited for are two calls.

It must not decide what an answer means. If the process dies between the two calls, the server does what it was sent.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from txsaga.aio.readable import readable_by
from txsaga.core.fibers import Fiber, current_fiber, run_blocking

IMPATIENCE = 0.0004
"""Seconds for which one looks again and again."""
PRICE = 4
"""What a look in vain costs; one that is worth it pays back 1."""
DEBT = 4 * PRICE
"""Where so much is owed most answers are slow: the disk is, or the server is far away."""
RESTS = 60
"""Answers for which nobody looks out then."""


class SpinWait:
    """One who looks out for answers, as long as that pays."""

    def __init__(self) -> None:
        self._owed = self._rests = 0

    def look(self, readable: select.poll) -> None:
        """Return as soon as there is something to read, or when one should rather sleep."""
        if self._rests:
            self._rests -= 1
        elif not readable.poll(0):  # one that is there already tells nothing
            self._keep_looking(readable)

    def _keep_looking(self, readable: select.poll) -> None:
        until = time.perf_counter() + IMPATIENCE
        while True:
            os.sched_yield()  # the server may need this very processor
            if readable.poll(0):
                self._owed = max(0, self._owed - 1)
                return
            if time.perf_counter() > until:
                break
        self._owed += PRICE
        if self._owed >= DEBT:
            self._owed, self._rests = 0, RESTS


UNPREPARED = "26000"
"""A statement is not prepared in this session: whoever resets sessions drops what was."""


_NONE: Mapping[str, Any] = MappingProxyType({})
_lookout = SpinWait()
_waiting = set[int]()
"""Threads that wait in `receive`. Who waits for the home database, or for other servers, is not among them."""
os.register_at_fork(after_in_child=_waiting.clear)


class SessionLost(Exception):
    """The session ended, or fell silent: nobody knows what became of what was sent."""


class ServerSilent(SessionLost):
    """There was no answer in time: the server may be at work on it still."""


class ServerAnswer(NamedTuple):
    """What the server says of one statement: its tag and the first row, or a clear error."""

    tag: str = ""
    row: Sequence[str | None] = ()
    state: str = ""  # the SQLSTATE of an error
    why: str = ""
    table: str = ""  # what a constraint belongs to


def hung_up(session: PGconn) -> bool:
    """Tell whether the server has left while nothing was under way: what is not sent yet is not in doubt."""
    if session.status == ConnStatus.BAD:
        return True
    readable = _poll(session, select.POLLIN)
    try:
        while readable.poll(0):
            session.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def begin(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], given: Mapping[str, Any] = _NONE) -> str:
    """Write what the driver would send by itself, in a round trip of its own; `given` goes before its settings."""
    level = given.get("isolation_level", driver.isolation_level)
    read_only = given.get("read_only", driver.read_only)
    deferrable = given.get("deferrable", driver.deferrable)
    words = ["BEGIN"]
    if level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(level).name.replace('_', ' ')}")
    if read_only is not None:
        words.append("READ ONLY" if read_only else "READ WRITE")
    if deferrable is not None:
        words.append("DEFERRABLE" if deferrable else "NOT DEFERRABLE")
    return " ".join(words)


def send(session: PGconn, text: str | bytes, patience: float = math.inf) -> None:
    """Send statements, waiting so many seconds till all of it is taken; together they are one round trip."""
    try:
        session.send_query(text.encode() if isinstance(text, str) else text)
        flush(session, patience)
    except psycopg.OperationalError as error:
        raise SessionLost(" ".join(str(error).split())) from error


def receive(
    session: PGconn, patience: float = math.inf, *, since: float | None = None, heard: bool = True
) -> Sequence[ServerAnswer]:
    """Wait so many seconds for the answer to each statement; one that failed is the last.

    They count from now on, or from a moment of the monotonic clock: who waits for many that were asked together waits
    no longer for all of them than for one.

    A task that is cancelled hears the answer first, unless there is nobody who would need it; unbroken work does so
    in any case.
    """
    me, aside, late = threading.get_ident(), current_fiber(), 0.0 if since is None else time.monotonic() - since
    try:
        if aside is not None:
            heard = aside.unbroken or (heard and patience < math.inf)
            return _arrived(session, patience, aside, late=late, heard=heard)
        _waiting.add(me)
        return _received(session, patience, late)
    except psycopg.OperationalError as error:
        raise SessionLost(" ".join(str(error).split())) from error
    finally:
        _waiting.discard(me)


def _received(session: PGconn, patience: float, late: float) -> Sequence[ServerAnswer]:
    readable, deadline, answers = None, 0.0, list[ServerAnswer]()
    while True:
        while session.is_busy():
            if readable is None:
                readable, deadline = _poll(session, select.POLLIN), time.monotonic() + patience - late
                if len(_waiting) == 1:  # with others about, their servers need the processor
                    _lookout.look(readable)
            if not readable.poll(_left(deadline)):
                raise ServerSilent(f"no answer for {patience:g} s")
            session.consume_input()
        result = session.get_result()
        if result is None:
            return answers
        answers.append(_answer(result))


def _arrived(session: PGconn, patience: float, aside: Fiber, *, late: float, heard: bool) -> Sequence[ServerAnswer]:
    """Wait as a task does; whoever hears the answer first notes that it was cancelled."""
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
            session.consume_input()  # also behind a cancellation: who is cancelled in each turn is told of no socket
        elif (result := session.get_result()) is None:
            return answers
        else:
            answers.append(_answer(result))


def ask_each(session: PGconn, statements: Sequence[str], patience: float) -> Sequence[ServerAnswer]:
    """Run statements, each in a transaction of its own, all of them on their way before the first is answered."""
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
    """Wait for one answer of a pipeline, and for the end of its transaction."""
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
    # FATAL and PANIC end the session, perhaps after what was sent was done; what has no state is the client's own word.
    if not state or _text(result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)) != "ERROR":
        raise SessionLost(said)
    return ServerAnswer(state=state, why=said, table=_text(result.error_field(DiagnosticField.TABLE_NAME)) or "")


def flush(session: PGconn, patience: float = math.inf) -> None:
    """Send all that is left, waiting so many seconds; within a loop a thread waits: nothing tells it of room."""
    if session.flush():
        run_blocking(lambda: _flush_slowly(session, patience))


def _flush_slowly(session: PGconn, patience: float) -> None:
    ready, deadline = _poll(session, select.POLLIN | select.POLLOUT), time.monotonic() + patience
    while session.flush():
        if not ready.poll(_left(deadline)):
            raise ServerSilent(f"not all of it was taken within {patience:g} s")
        session.consume_input()  # the server may want to be read meanwhile


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _left(deadline: float) -> float | None:
    return None if deadline == math.inf else max(0, deadline - time.monotonic()) * 1000


def _poll(session: PGconn, events: int) -> select.poll:
    poll = select.poll()
    poll.register(session.socket, events)
    return poll
