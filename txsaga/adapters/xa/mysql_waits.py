"""
Whether a session in MariaDB or MySQL waits for a prepared branch of its own flow, directly or behind other sessions.

The servers list who waits for whom by the numbers of transactions and don't say which branch is which, so a branch's
number is noted before it is prepared. Who may not look (PROCESS is the right for it) finds nothing: then a step waits
as long as innodb_lock_wait_timeout says.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.xa.postgres_waits import opened

_NUMBER = "select trx_id from information_schema.innodb_trx where trx_mysql_thread_id = connection_id()"
_OF = text("select trx_id from information_schema.innodb_trx where trx_mysql_thread_id = :thread")
_MARIADB = "select requesting_trx_id, blocking_trx_id from information_schema.innodb_lock_waits"
_MYSQL = """select requesting_engine_transaction_id, blocking_engine_transaction_id
  from performance_schema.data_lock_waits"""


class MysqlWaits:
    """An eye on one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, marks: Sequence[str]) -> None:
        driver: Any = connection.connection.driver_connection
        self._engine, self._name, self._thread = engine, name, driver.thread_id()
        self._marks = frozenset(filter(None, marks))
        self._question = _MARIADB if getattr(engine.dialect, "is_mariadb", False) else _MYSQL
        self._own: Connection | None = None

    def own_blocker(self) -> str | None:
        """Return the number of the transaction that the session waits for, if it is one of the flow's."""
        if not self._marks:
            return None
        with suppress(DBAPIError):
            waiting = {str(number) for number in self._connected().execute(_OF, {"thread": self._thread}).scalars()}
            blockers = [(str(asks), str(has)) for asks, has in self._connected().exec_driver_sql(self._question)]
            seen: set[str] = set()
            while waiting - seen:
                seen |= waiting
                waiting = {has for asks, has in blockers if asks in waiting}
                if found := waiting & self._marks:
                    return min(found)
        return None

    def interrupt(self) -> None:
        """Cancel the statement that waits."""
        with suppress(DBAPIError):
            self._connected().exec_driver_sql(f"kill query {self._thread}").close()

    def close(self) -> None:
        """Give the own session back."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _connected(self) -> Connection:
        if self._own is None:
            self._own = opened(self._engine, self._name)
        return self._own


def transaction_number(connection: Connection) -> str:
    """Return the number of the transaction that a session is in, or nothing where nobody may look."""
    with suppress(DBAPIError):
        return str(connection.exec_driver_sql(_NUMBER).scalar() or "")
    return ""
