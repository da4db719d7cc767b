"""
A pooled connection to MariaDB or MySQL that is spoken to in whole messages, past SQLAlchemy and the driver's cursors.

Several statements go as one: the server does one behind the other and stops at the first that fails. A session may not
do that unless its engine was opened for it, so it is told before such a message that it may, and with the next one that
it may not. What is sent and what is waited for are two calls. A session with an answer under way must be closed: what
comes next on it would belong to nobody.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.xa.mysql_session import Refused, SessionLost, cut

_QUERY, _SET_OPTION = 3, 27
"""Commands of the protocol."""
_MULTI_STATEMENTS = 1 << 16
"""What a client says that may always send several statements."""
_SEVERAL, _ONE = (struct.pack("<iBH", 3, _SET_OPTION, off) for off in (0, 1))


class FellSilent(SessionLost):
    """There was no answer in time: the server may be at work on it still."""


class Answers(NamedTuple):
    """How many rows each statement changed, and why the one behind them failed."""

    counts: Sequence[int]
    refused: Refused | None = None


class LentSession:
    """A session of a pool, for one branch."""

    connection: Any = None  # nobody works with it
    in_first_transaction = True
    unwritable = KeyError, TypeError, UnicodeError

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._pooled = engine.raw_connection()
        driver: Any = self._pooled.driver_connection
        self._driver, self.number = driver, int(driver.thread_id())
        self._always = bool(driver.client_flag & _MULTI_STATEMENTS)
        self.over = False  # the last that was done in it has ended its transaction
        self._several = self._optioned = self._under_way = self._given_back = False

    @property
    def lost(self) -> bool:
        """Whether the connection no longer stands for the session that it was lent with."""
        driver = self._driver
        return (
            self._given_back
            or not driver.open
            or driver.thread_id() != self.number
            or self._pooled.driver_connection is not driver
        )

    @property
    def gone(self) -> bool:
        """Whether it is lost, or the server has left while nothing was under way."""
        if self.lost:
            return True
        readable = select.poll()
        readable.register(self._driver._sock, select.POLLIN)
        if readable.poll(0):  # a farewell, or a ticket of TLS
            with suppress(self._errors, OSError):
                self._driver.ping(reconnect=False)
                return False
            return True
        return False

    def send(self, text: str, *, several: bool = False) -> None:
        """Send statements."""
        driver, self._under_way, self.over = self._driver, True, False
        self._optioned = several is not self._several and not self._always

        def sent() -> None:
            if self._optioned:
                driver._write_bytes(_SEVERAL if several else _ONE)
            driver._execute_command(_QUERY, text)

        self._understood(sent)
        self._several = several and not self._always

    def receive(self, patience: float) -> Answers:
        """Wait so many seconds for the answers; the one that failed is the last."""
        driver, counts = self._driver, list[int]()
        waits, driver._read_timeout = driver._read_timeout, patience
        try:
            if self._optioned:
                self._understood(driver._read_packet)
                driver._next_seq_id = 1  # of the answer to the next command
            counts.append(self._understood(driver._read_query_result))
            while driver._result.has_next:
                counts.append(self._understood(driver._read_query_result))
        except Refused as refused:
            self._under_way = False
            return Answers(counts, refused)
        finally:
            driver._read_timeout = waits
        self._under_way = False
        return Answers(counts)

    def run(self, statement: str) -> None:
        """Run a statement that answers nothing."""
        self.send(statement)
        refused = self.receive(self._driver._read_timeout).refused
        if refused is not None:
            raise refused

    def literal(self, text: str, values: Mapping[str, object]) -> str:
        """Write values into a statement, as the driver does."""
        with self._driver.cursor() as cursor:
            return str(cursor.mogrify(text, values))

    def encode(self, text: str) -> bytes:
        """Write a text as the session sends it."""
        return text.encode(self._driver.encoding)

    def cut(self) -> None:
        """Break off a line that fell silent."""
        cut(self._driver)

    def give_back(self) -> None:
        """Give it back to its pool; one with an answer under way is closed."""
        if self._under_way or self.lost:
            self.end()
            return
        try:
            if self._several:
                self.run("DO 0")  # it may send one statement at a time again
        except (Refused, SessionLost):
            self.end()
        else:
            self._close()

    def _close(self) -> None:
        """Close it without a round trip for its pool, which rolls back whatever it is given: nothing is open."""
        driver, self._given_back = self._driver, True
        if self.over:
            driver.rollback = _nothing
        try:
            self._pooled.close()
        finally:
            driver.__dict__.pop("rollback", None)

    def end(self) -> None:
        """Close it: what is prepared stays prepared and is free for others, what is not is rolled back."""
        if not self._given_back:
            self._given_back = True
            self._pooled.invalidate()
            self._pooled.close()

    def discard(self) -> None:
        """Close it as stale, and with it whatever the pool has kept as long."""
        self.end()
        with suppress(DBAPIError), self._engine.connect() as connection:
            connection.exec_driver_sql("select 1").close()  # the pool learns of it from SQLAlchemy alone

    def _understood(self, step: Callable[[], Any]) -> Any:  # of the driver
        try:
            return step()
        except self._errors as error:
            why = " ".join(str(error).split())
            number = error.args[0] if error.args else None
            if isinstance(error.__context__, TimeoutError):
                raise FellSilent(why) from error
            if not self._driver.open or number in _LOST:
                raise SessionLost(why) from error
            raise Refused(number, why) from error
        except OSError as error:
            raise SessionLost(" ".join(str(error).split())) from error


def _nothing() -> None:
    pass


_LOST = frozenset({0, 2006, 2013, 1927, 4031})
"""The driver's own numbers, and the servers' for a session that they end: killed, and idle for too long."""
