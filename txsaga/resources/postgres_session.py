"""
The one session of a branch: a pooled connection, used without SQLAlchemy for what it must not notice.

Its user works with a SQLAlchemy connection, or with the driver's own, which is faster.

It checks that the session is still the one that the branch began on. It must never open another: the work of a lost
session is gone, and later work would be half a branch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txsaga.core.failure import report_failure
from txsaga.errors import StoreError
from txsaga.evidence import libpq
from txsaga.evidence.libpq import ServerAnswer, SessionLost
from txsaga.evidence.local_transaction import refuse_commits
from txsaga.evidence.sessions import leave_autocommit

UNASKED = 5.0
"""Seconds for the answer to a ROLLBACK before the vote: the server also rolls back when the session ends."""
_AT_WORK = (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)


class PostgresSession:
    """A session with its own transaction, and a mark that ends with that."""

    def __init__(self, connection: Connection, patience: float, handle: object) -> None:
        self._connection, self._patience, self.handle = connection, patience, handle
        driver: Any = connection.connection.driver_connection
        self._driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] = driver
        self._read_by = driver.row_factory, driver.cursor_factory, driver.prepare_threshold
        leave_autocommit(connection)
        self._opened = connection.begin()
        refuse_commits(connection)

    def begin(self, marking: str) -> Self:
        """Begin the transaction and mark it; `SessionLost` if the pooled session was dead."""
        begun = self.state == TransactionStatus.INTRANS
        with report_failure(self._let_go):  # it is not in use yet
            answer = self.ask(marking if begun else f"{libpq.begin(self._driver)}; {marking}")
        if answer.state:
            self.give_back()
            raise StoreError(f"no transaction can be begun: {answer.why}")
        return self

    @property
    def number(self) -> int:
        """The server's number of the session."""
        return self._driver.pgconn.backend_pid

    @property
    def state(self) -> int:
        """The state of the transaction as the client knows it, without a round trip: a `TransactionStatus`."""
        return self._driver.pgconn.transaction_status

    @property
    def lost(self) -> bool:
        """Whether the connection no longer has the session that it was opened with."""
        connection = self._connection
        if connection.closed or connection.invalidated:
            return True
        return connection.connection.driver_connection is not self._driver

    @property
    def gone(self) -> bool:
        """Whether it is lost, or the server closed it while it was idle."""
        return self.lost or libpq.hung_up(self._driver.pgconn)

    @property
    def in_first_transaction(self) -> bool:
        """Whether neither SQLAlchemy nor the client has seen the transaction end."""
        return self._connection.get_transaction() is self._opened and self.state == TransactionStatus.INTRANS

    def send(self, text: str) -> None:
        """Send statements."""
        self._sent = time.monotonic()
        libpq.send(self._driver.pgconn, text, self._patience)

    def receive(self, patience: float = math.inf, *, heard: bool = True) -> Sequence[ServerAnswer]:
        """Wait for the answers, at most as long as this resource allows, counted from sending."""
        return libpq.receive(self._driver.pgconn, min(patience, self._patience), since=self._sent, heard=heard)

    def ask(self, text: str) -> ServerAnswer:
        """Send statements and return the last answer; a cancelled task does not wait for it."""
        self.send(text)
        return self.receive(heard=False)[-1]

    def forget_transaction(self) -> None:
        """Close SQLAlchemy's transaction once it is over, without sending anything to the server."""
        if self._opened.is_active and self.state == TransactionStatus.IDLE:
            self._opened.close()

    def give_back(self) -> None:
        """Give it back to its pool, rolled back; close it if an answer is pending."""
        if not self.lost:
            driver: Any = self._driver
            driver.row_factory, driver.cursor_factory, driver.prepare_threshold = self._read_by
            if self.state in _AT_WORK:
                self._connection.invalidate()
        self._connection.close()

    def _let_go(self, error: BaseException) -> None:
        if isinstance(error, SessionLost):
            self._discard()
        else:
            self.give_back()

    def _discard(self) -> None:
        """Close it as stale, with every session that the pool has kept as long."""
        with suppress(DBAPIError):
            self._connection.exec_driver_sql("select 1").close()  # the pool notices only what SQLAlchemy sees
        self._connection.invalidate()
        self._connection.close()
