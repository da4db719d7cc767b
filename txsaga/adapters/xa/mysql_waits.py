"""
Whether a session in MariaDB or MySQL waits for what its own flow, or its own transaction, holds, or behind it.

The servers list who waits for whom by the numbers of transactions and don't say which branch is which, so a branch's
number is noted before it is prepared. Who may not look (PROCESS is the right for it) finds nothing: then a step waits
as long as innodb_lock_wait_timeout says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, text
from sqlalchemy.exc import DBAPIError

from txsaga.adapters.xa.looking import Looking

_NUMBER = "select trx_id from information_schema.innodb_trx where trx_mysql_thread_id = connection_id()"
_OF = text("""select trx_mysql_thread_id, trx_id from information_schema.innodb_trx
  where trx_mysql_thread_id in :threads""").bindparams(bindparam("threads", expanding=True))
_MARIADB = "select requesting_trx_id, blocking_trx_id from information_schema.innodb_lock_waits"
_MYSQL = """select requesting_engine_transaction_id, blocking_engine_transaction_id
  from performance_schema.data_lock_waits"""


class MysqlLook:
    """A look at sessions."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._looking = Looking(engine, name)
        self._question = _MARIADB if getattr(engine.dialect, "is_mariadb", False) else _MYSQL

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return who waits for whom of these."""
        try:
            transactions, waits = self.transactions(numbers), self.waits()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return None
        holders = {transaction: number for number, transaction in transactions.items()}
        for number, transaction in transactions.items():
            if found := reached(waits, transaction, holders.keys() - {transaction}):
                return number, holders[found]
        return None

    def interrupt(self, waiter: int, holder: int) -> bool:
        """Cancel the statement that waits, if it still does."""
        pair = self.blocked([waiter, holder])
        return pair is not None and pair[0] == waiter and self.cancel(waiter)

    def cancel(self, number: int) -> bool:
        """Cancel what a session does; False where that is not allowed."""
        with suppress(DBAPIError):
            self._looking.connection.exec_driver_sql(f"kill query {number}").close()
            return True
        return False

    def close(self) -> None:
        """Close the own session."""
        self._looking.close()

    def transactions(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the numbers of the transactions that these sessions are in."""
        found = self._looking.connection.execute(_OF, {"threads": list(numbers)})
        return {thread: str(transaction) for thread, transaction in found}

    def waits(self) -> list[tuple[str, str]]:
        """Return which transactions wait for which."""
        return [(str(asks), str(has)) for asks, has in self._looking.connection.exec_driver_sql(self._question)]


def reached(waits: Collection[tuple[str, str]], waiter: str, holders: Set[str]) -> str | None:
    """Return the first of some transactions that another waits for, directly or behind others."""
    waiting, seen = {waiter}, set[str]()
    while waiting - seen:
        seen |= waiting
        waiting = {has for asks, has in waits if asks in waiting}
        if found := waiting & holders:
            return min(found)
    return None


class MysqlWaits:
    """An eye on one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, marks: Sequence[str]) -> None:
        driver: Any = connection.connection.driver_connection
        self._look, self._thread = MysqlLook(engine, name), driver.thread_id()
        self._marks = frozenset(filter(None, marks))

    def own_blocker(self) -> str | None:
        """Return the number of the transaction that the session waits for, if it is one of the flow's."""
        if self._marks:
            with suppress(DBAPIError):
                for mark in self._look.transactions([self._thread]).values():
                    return reached(self._look.waits(), mark, self._marks)
        return None

    def interrupt(self) -> None:
        """Cancel the statement that waits."""
        self._look.cancel(self._thread)

    def close(self) -> None:
        """Give the own session back."""
        self._look.close()


def transaction_number(connection: Connection) -> str:
    """Return the number of the transaction that a session is in, or nothing where nobody may look."""
    with suppress(DBAPIError):
        return str(connection.exec_driver_sql(_NUMBER).scalar() or "")
    return ""
