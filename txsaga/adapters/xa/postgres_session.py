"""
The one session of a branch: a pooled SQLAlchemy connection, spoken to past SQLAlchemy where it must not know.

It tells whether the session is still the one that the branch began on. It must never open another: work that lost its
session is gone, and the rest of it would be half a branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.evidence.sessions import leave_autocommit
from txsaga.adapters.xa import libpq
from txsaga.adapters.xa.libpq import Answer, SessionLost
from txsaga.errors import StoreError

_AT_WORK = (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)


class Session:
    """A session with a transaction of its own, marked with a name that ends with it."""

    def __init__(self, connection: Connection, patience: float) -> None:
        driver: Any = connection.connection.driver_connection
        self.connection = connection
        self._driver: psycopg.Connection[Any] = driver
        self._patience = patience
        self._opened = connection.begin()

    @classmethod
    def begun(cls, connection: Connection, mark: str, patience: float) -> Self:
        """Begin the transaction and mark it; `SessionLost` where the pool kept a dead session."""
        leave_autocommit(connection)
        session = cls(connection, patience)
        begin = "" if session.state == TransactionStatus.INTRANS else f"{_begin(session._driver)}; "
        try:
            answer = session.ask(f"{begin}{mark}")
        except SessionLost:
            session._discard()
            raise
        if answer.state:
            connection.close()
            raise StoreError(f"no transaction can be begun: {answer.why}")
        return session

    @property
    def state(self) -> TransactionStatus:
        """What the client knows of the server's transaction, without asking."""
        return TransactionStatus(self._driver.pgconn.transaction_status)

    @property
    def lost(self) -> bool:
        """Whether the connection no longer stands for the session that it was opened with."""
        if self.connection.closed or self.connection.invalidated:
            return True
        return self.connection.connection.driver_connection is not self._driver

    @property
    def gone(self) -> bool:
        """Whether it is lost, or the server has left while nothing was under way."""
        return self.lost or libpq.hung_up(self._driver.pgconn)

    @property
    def in_first_transaction(self) -> bool:
        """Whether SQLAlchemy and the client both know of no end of the transaction, good or bad."""
        return self.connection.get_transaction() is self._opened and self.state == TransactionStatus.INTRANS

    def send(self, text: str) -> None:
        """Send statements."""
        libpq.send(self._driver.pgconn, text)

    def receive(self) -> Sequence[Answer]:
        """Wait for the answers."""
        return libpq.receive(self._driver.pgconn, self._patience)

    def ask(self, text: str) -> Answer:
        """Send statements and return the last answer."""
        self.send(text)
        return self.receive()[-1]

    def forget_transaction(self) -> None:
        """Let SQLAlchemy know that its transaction is over; the server hears nothing of it."""
        if self._opened.is_active and self.state == TransactionStatus.IDLE:
            self._opened.close()

    def give_back(self) -> None:
        """Give it back to its pool, rolled back; with an answer under way it is closed."""
        if not self.lost and self.state in _AT_WORK:
            self.connection.invalidate()
        self.connection.close()

    def _discard(self) -> None:
        """Close it as stale, and with it whatever the pool has kept as long."""
        with suppress(DBAPIError):
            self.connection.exec_driver_sql("select 1").close()  # the pool learns of it from SQLAlchemy alone
        self.connection.invalidate()
        self.connection.close()


def _begin(driver: psycopg.Connection[Any]) -> str:
    """Write what the driver would send by itself, in a round trip of its own."""
    words = ["BEGIN"]
    if driver.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(driver.isolation_level).name.replace('_', ' ')}")
    if driver.read_only is not None:
        words.append("READ ONLY" if driver.read_only else "READ WRITE")
    if driver.deferrable is not None:
        words.append("DEFERRABLE" if driver.deferrable else "NOT DEFERRABLE")
    return " ".join(words)
