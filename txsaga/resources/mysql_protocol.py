"""
A pooled connection to MariaDB or MySQL that sends whole messages, without SQLAlchemy and the driver's cursors.

Several statements are one message: the server runs them in order and stops at the first that fails. Unless the engine
was opened for that, the server must allow it: an option is set before such a message and unset before the next one.
Sending and waiting are two calls. A session with a pending answer must be closed: the next user would read that answer.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from txsaga.resources.lending import give_back_idle, raw
from txsaga.resources.mysql_session import MysqlSessionLost, Refused, cut

UNASKED = 5.0
"""Seconds for the answer to a ROLLBACK without a decision: the server also rolls back when the session ends."""
_LEAST, _NEARLY = 0.001, 0.9
_QUERY, _SET_OPTION = 3, 27
"""Commands of the protocol."""
_MULTI_STATEMENTS = 1 << 16
"""The flag of a client that may always send several statements."""
_SEVERAL, _ONE = (struct.pack("<iBH", 3, _SET_OPTION, off) for off in (0, 1))


class MysqlSilent(MysqlSessionLost):
    """No answer came in time: the server may still be working on it."""


class Answers(NamedTuple):
    """How many rows each statement changed, and why the one after them failed."""

    counts: Sequence[int]
    refused: Refused | None = None


class LentSession:
    """A pooled session, lent to one branch."""

    connection: Any = None  # not for the user
    in_first_transaction = True
    unwritable = KeyError, TypeError, UnicodeError

    def __init__(self, engine: Engine, patience: float) -> None:
        self._engine, self._patience = engine, patience
        self._errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._pooled = raw(engine)
        driver: Any = self._pooled.driver_connection
        self._driver, self.number = driver, int(driver.thread_id())
        self._always = bool(driver.client_flag & _MULTI_STATEMENTS)
        self._waits = driver._read_timeout, driver._write_timeout
        self.over = False  # an earlier use may have begun something, to be rolled back
        self._several = self._optioned = self._under_way = self._given_back = False

    @property
    def lost(self) -> bool:
        """Whether the connection no longer has the session that it was lent with."""
        driver = self._driver
        return (
            self._given_back
            or not driver.open
            or driver.thread_id() != self.number
            or self._pooled.driver_connection is not driver
        )

    @property
    def gone(self) -> bool:
        """Whether it is lost, or the server closed it while it was idle."""
        if self.lost:
            return True
        readable = select.poll()
        readable.register(self._driver._sock, select.POLLIN)
        if readable.poll(0):  # a goodbye, or a TLS ticket
            with suppress(self._errors, OSError):
                self._driver.ping(reconnect=False)
                return False
            return True
        return False

    def send(self, text: str, *, several: bool = False) -> None:
        """Send statements."""
        self._require_line()
        self._wait_for(self._patience)  # also if the server accepts no more data
        self._sent = time.monotonic()
        driver, self._under_way, self.over = self._driver, True, False
        self._optioned = several is not self._several and not self._always

        def sent() -> None:
            if self._optioned:
                driver._write_bytes(_SEVERAL if several else _ONE)
            driver._execute_command(_QUERY, text)

        self._understood(sent)
        self._several = several and not self._always

    def receive(self, patience: float) -> Answers:
        """Wait for the answers, `patience` seconds from sending; a failed one is the last."""
        self._require_line()
        return self._received(self._sent + patience)

    def _wait_for(self, seconds: float) -> None:
        """Set the driver's timeouts for each step, not the socket's: that would release the GIL each time."""
        driver, (_, writes) = self._driver, self._waits
        driver._read_timeout = seconds
        driver._write_timeout = seconds if writes is None else writes

    def _received(self, until: float) -> Answers:
        driver, counts = self._driver, list[int]()
        if self._optioned:
            try:
                self._read(driver._read_packet, until)
            except Refused as refused:  # the answer to the statements is still to come
                raise MysqlSessionLost(f"it takes one statement at a time: {refused}") from refused
            driver._next_seq_id = 1  # of the next command's answer
        try:
            counts.append(self._read(driver._read_query_result, until))
            while driver._result.has_next:
                counts.append(self._read(driver._read_query_result, until))
        except Refused as refused:
            self._under_way = False
            return Answers(counts, refused)
        self._under_way = False
        return Answers(counts)

    def _read(self, step: Callable[[], Any], until: float) -> Any:
        left = until - time.monotonic()
        if left < self._driver._read_timeout * _NEARLY:  # several answers share the time
            self._wait_for(max(_LEAST, left))
        return self._understood(step)

    def run(self, statement: str, patience: float = UNASKED) -> None:
        """Run a statement that returns nothing."""
        self.send(statement)
        refused = self.receive(patience).refused
        if refused is not None:
            raise refused

    def literal(self, text: str, values: Mapping[str, object]) -> str:
        """Render values into a statement, as the driver does."""
        with self._driver.cursor() as cursor:
            return str(cursor.mogrify(text, values))

    def encode(self, text: str) -> bytes:
        """Encode a text as the session sends it."""
        return text.encode(self._driver.encoding)

    def cut(self) -> None:
        """Shut down a silent connection."""
        cut(self._driver)

    def give_back(self) -> None:
        """Give it back to its pool, with nothing open; close it if an answer is pending."""
        if self._under_way or self.lost:
            self.end()
            return
        try:
            if self._several or not self.over:
                self.run("ROLLBACK")  # this also ends the permission to send several
        except (Refused, MysqlSessionLost):
            self.end()
        else:
            self._leave()
            give_back_idle(self._pooled)

    def _leave(self) -> None:
        self._given_back = True
        self._driver._read_timeout, self._driver._write_timeout = self._waits

    def end(self) -> None:
        """Close it: prepared work stays prepared, for others to finish; the rest is rolled back."""
        if not self._given_back:
            self._leave()
            self._pooled.invalidate()
            self._pooled.close()

    def discard(self) -> None:
        """Close it as stale, with every session that the pool has kept as long."""
        self.end()
        with suppress(DBAPIError), self._engine.connect() as connection:
            connection.exec_driver_sql("select 1").close()  # the pool notices only what SQLAlchemy sees

    def _require_line(self) -> None:
        if self._given_back or not self._driver.open:
            raise MysqlSessionLost("it is closed")

    def _understood(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except self._errors as error:
            why = " ".join(str(error).split())
            number = error.args[0] if error.args else None
            if not self._driver.open and isinstance(error.__context__, TimeoutError):
                raise MysqlSilent(why) from error
            if not self._driver.open or number in _LOST:
                raise MysqlSessionLost(why) from error
            raise Refused(number, why) from error
        except (OSError, RuntimeError) as error:  # a lost connection, or a statement that asks for a local file
            raise MysqlSessionLost(" ".join(str(error).split())) from error


_LOST = frozenset({0, 2006, 2013, 2014, 1927, 4031})
"""The driver's own numbers, and the servers' for a session that they end: killed, or idle for too long."""
