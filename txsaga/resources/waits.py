"""
Views of lock waits, each through a session outside the resource's pool.

To find out what a session waits for, one must not wait for another: the pool may have no other. It is opened by the
first question, connecting as the pool does, and closed with the view.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from contextlib import suppress

from sqlalchemy import Connection, Engine, bindparam, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from txsaga.evidence.driver_errors import code_of, edge
from txsaga.resources import codes
from txsaga.resources.participant import LockWait


class InspectionSession:
    """A session of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.name = engine, name
        self._beside: Engine | None = None
        self._own: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The session, opened on first use and after it was lost."""
        if self._own is None:
            with edge(self.name):
                self._beside = Engine(self._engine.pool.recreate(), self._engine.dialect, self._engine.url)
                self._own = self._beside.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._own

    def close(self) -> None:
        """Close it."""
        own, beside, self._own, self._beside = self._own, self._beside, None, None
        if own is not None:
            with suppress(SQLAlchemyError):  # it is over in any case
                own.close()
        if beside is not None:
            beside.dispose()


def is_cancelled(error: BaseException) -> bool:
    """Return whether an error is that of a cancelled statement, from SQLAlchemy or its driver."""
    return code_of(error) in codes.CANCELLED


_NUMBER = "select trx_id from information_schema.innodb_trx where trx_mysql_thread_id = connection_id()"
_OF = text("""select trx_mysql_thread_id, trx_id from information_schema.innodb_trx
  where trx_mysql_thread_id in :threads""").bindparams(bindparam("threads", expanding=True))
_MARIADB = "select requesting_trx_id, blocking_trx_id from information_schema.innodb_lock_waits"
_MYSQL = """select requesting_engine_transaction_id, blocking_engine_transaction_id
  from performance_schema.data_lock_waits"""


class MysqlLockView(InspectionSession):
    """A view of lock waits in MariaDB or MySQL, which know held work by the number of its transaction."""

    def blocked(self, sessions: Sequence[int], held: Sequence[str]) -> LockWait | None:
        """Return one of these sessions that waits for another one or for held work."""
        try:
            transactions, waits = self._transactions(sessions), self._waits()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return None
        holders: dict[str, int | str] = {name: name for name in held}
        holders.update({transaction: number for number, transaction in transactions.items()})
        for number, transaction in transactions.items():
            if found := reached(waits, transaction, holders.keys() - {transaction}):
                return LockWait(number, holders[found])
        return None

    def interrupt(self, wait: LockWait) -> bool:
        """Cancel the waiting statement, if it still waits."""
        if self.blocked(wait.sessions, wait.held) != wait:
            return False
        with suppress(DBAPIError):
            self.connection.exec_driver_sql(f"kill query {wait.waiter}").close()
            return True
        return False

    def _transactions(self, sessions: Sequence[int]) -> dict[int, str]:
        found = self.connection.execute(_OF, {"threads": sessions})
        return {thread: str(transaction) for thread, transaction in found}

    def _waits(self) -> list[tuple[str, str]]:
        """Return which transactions wait for which."""
        question = _MARIADB if getattr(self.connection.dialect, "is_mariadb", False) else _MYSQL
        return [(str(asks), str(has)) for asks, has in self.connection.exec_driver_sql(question)]


def reached(waits: Collection[tuple[str, str]], waiter: str, holders: Set[str]) -> str | None:
    """Return the first of some transactions that another waits for, directly or through others."""
    waiting, seen = {waiter}, set[str]()
    while waiting - seen:
        seen |= waiting
        waiting = {has for asks, has in waits if asks in waiting}
        if found := waiting & holders:
            return min(found)
    return None


def transaction_number(connection: Connection) -> str:
    """Return the number of a session's transaction; nothing without the right to look."""
    with suppress(DBAPIError):
        return str(connection.exec_driver_sql(_NUMBER).scalar() or "")
    return ""


_FOUND = """
with recursive waiting(waiter, pid) as (
  select asked, asked from unnest(cast(:sessions as int[])) as asked
   union select waiter, other from waiting, unnest(pg_blocking_pids(waiting.pid)) as other where other <> 0),
found(waiter, session, held) as (
  select waiter, pid, cast(null as text) from waiting where pid <> waiter and pid = any(cast(:sessions as int[]))
   union all
  select waiting.waiter, null, prepared.gid from waiting
    join pg_locks asked on asked.pid = waiting.pid and not asked.granted
    join pg_locks held on held.granted and held.pid is null and held.locktype = asked.locktype
     and (held.database, held.relation, held.page, held.tuple, held.transactionid, held.classid, held.objid,
          held.objsubid)
         is not distinct from
         (asked.database, asked.relation, asked.page, asked.tuple, asked.transactionid, asked.classid, asked.objid,
          asked.objsubid)
    join pg_locks named on named.granted and named.pid is null and named.locktype = 'transactionid'
     and named.mode = 'ExclusiveLock' and named.virtualtransaction = held.virtualtransaction
    join pg_prepared_xacts prepared on prepared.transaction = named.transactionid
   where prepared.gid = any(cast(:held as text[])))"""
_WAIT = text(f"{_FOUND} select waiter, session, held from found limit 1")
_CANCEL = text(f"{_FOUND} select pg_cancel_backend(waiter) from found where waiter = :waiter limit 1")


class PostgresLockView(InspectionSession):
    """A view of lock waits in PostgreSQL, which knows held work by the name of its branch."""

    def blocked(self, sessions: Sequence[int], held: Sequence[str]) -> LockWait | None:
        """Return one of these sessions that waits for another one or for held work."""
        with edge(self.name):
            found = self.connection.execute(_WAIT, {"sessions": sessions, "held": held}).first()
        return None if found is None else LockWait(found.waiter, found.held or found.session)

    def interrupt(self, wait: LockWait) -> bool:
        """Cancel the waiting statement, if it still waits: the server checks once more."""
        values = {"waiter": wait.waiter, "sessions": wait.sessions, "held": wait.held}
        with edge(self.name):
            return self.connection.execute(_CANCEL, values).scalar() is True
