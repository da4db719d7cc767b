"""
The one session of a branch in MariaDB or MySQL: a pooled SQLAlchemy connection, used through its driver.

While its branch is open or prepared the server refuses COMMIT and ROLLBACK, so it may return to its pool only when the
branch is over; before that it is closed. It must never open another session for a branch.
"""

from __future__ import annotations

from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

from sqlalchemy import Connection


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, number: object, why: str) -> None:
        super().__init__(why)
        self.number = number


class MysqlSessionLost(Exception):
    """The session ended: the outcome of what was sent is unknown."""


class MysqlSession:
    """A session with a branch of its own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        driver: Any = connection.connection.driver_connection
        self._driver: Any = driver
        self.number: int = driver.thread_id()  # a driver that reconnects changes only this
        self._opened = connection.get_transaction()

    @property
    def lost(self) -> bool:
        """Whether the connection no longer has the session that it was opened with."""
        driver: Any = self._driver
        return not self._is_held or not driver.open or driver.thread_id() != self.number

    @property
    def _is_held(self) -> bool:
        """Whether SQLAlchemy still holds the driver's connection that it was opened with."""
        connection = self.connection
        if connection.closed or connection.invalidated:
            return False
        return connection.connection.driver_connection is self._driver

    @property
    def in_first_transaction(self) -> bool:
        """Whether its transaction was never ended through SQLAlchemy."""
        opened = self._opened
        return opened is not None and opened.is_active and self.connection.get_transaction() is opened

    def run(self, statement: str) -> None:
        """Run a statement that returns nothing."""
        dialect = self.connection.dialect
        errors = dialect.loaded_dbapi.Error
        try:
            with self._driver.cursor() as cursor:
                cursor.execute(statement)
        except errors as error:
            why = " ".join(str(error).split())
            if not self._driver.open or dialect.is_disconnect(error, self._driver, None):
                raise MysqlSessionLost(why) from error
            raise Refused(error.args[0] if error.args else None, why) from error

    def cut(self) -> None:
        """Shut down a silent connection: the waiting thread notices, and so does the server with its locks."""
        line = getattr(self._driver, "_sock", None)  # private: the driver offers no way to break off a silent session
        if line is not None:
            with suppress(OSError):
                line.shutdown(SHUT_RDWR)

    def give_back(self) -> None:
        """Give it back to its pool."""
        self.connection.close()

    def end(self) -> None:
        """Close it: prepared work stays prepared, for others to finish; the rest is rolled back."""
        if self._is_held:
            self.connection.invalidate()
        self.connection.close()
