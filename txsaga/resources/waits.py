"""
A session for inspecting waits, outside the resource's pool.

To find out what two sessions wait for, one must not wait for a third: the pool may have no other. It is opened by the
first question, connecting as the pool does, and closed with the view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from txsaga.evidence.driver_errors import code_of, edge
from txsaga.flows.branch import PREFIX, BranchId
from txsaga.resources import codes
from txsaga.resources.participant import EnlistedBranch


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


class MysqlLockView:
    """A view of the lock waits of sessions."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._looking = InspectionSession(engine, name)
        self._question = _MARIADB if getattr(engine.dialect, "is_mariadb", False) else _MYSQL

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return which of these sessions waits for which."""
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
        """Cancel the waiting statement, if it still waits."""
        pair = self.blocked([waiter, holder])
        return pair is not None and pair[0] == waiter and self.cancel(waiter)

    def cancel(self, number: int) -> bool:
        """Cancel a session's statement; False if that is not allowed."""
        with suppress(DBAPIError):
            self._looking.connection.exec_driver_sql(f"kill query {number}").close()
            return True
        return False

    def close(self) -> None:
        """Close its own session."""
        self._looking.close()

    def transactions(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the transaction numbers of these sessions."""
        found = self._looking.connection.execute(_OF, {"threads": list(numbers)})
        return {thread: str(transaction) for thread, transaction in found}

    def waits(self) -> list[tuple[str, str]]:
        """Return which transactions wait for which."""
        return [(str(asks), str(has)) for asks, has in self._looking.connection.exec_driver_sql(self._question)]


def reached(waits: Collection[tuple[str, str]], waiter: str, holders: Set[str]) -> str | None:
    """Return the first of some transactions that another waits for, directly or through others."""
    waiting, seen = {waiter}, set[str]()
    while waiting - seen:
        seen |= waiting
        waiting = {has for asks, has in waits if asks in waiting}
        if found := waiting & holders:
            return min(found)
    return None


class MysqlWaits:
    """Watches one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, marks: Sequence[str]) -> None:
        driver: Any = connection.connection.driver_connection
        self._look, self._thread = MysqlLockView(engine, name), driver.thread_id()
        self._marks = frozenset(filter(None, marks))

    def own_blocker(self) -> str | None:
        """Return the number of the transaction that the session waits for, if it is one of the flow's."""
        if self._marks:
            with suppress(DBAPIError):
                for mark in self._look.transactions([self._thread]).values():
                    return reached(self._look.waits(), mark, self._marks)
        return None

    def interrupt(self) -> None:
        """Cancel the waiting statement."""
        self._look.cancel(self._thread)

    def close(self) -> None:
        """Close its own session."""
        self._look.close()


def transaction_number(connection: Connection) -> str:
    """Return the number of a session's transaction; nothing without the right to look."""
    with suppress(DBAPIError):
        return str(connection.exec_driver_sql(_NUMBER).scalar() or "")
    return ""


_BLOCKER = text("""
with recursive waiting(pid) as (
  select cast(:pid as int)
   union select other from waiting, unnest(pg_blocking_pids(waiting.pid)) as other where other <> 0)
select prepared.gid from waiting
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
 where starts_with(prepared.gid, :prefix) limit 1""")
_WAITING = """
with recursive waiting(waiter, pid) as (
  select asked, asked from unnest(cast(:pids as int[])) as asked
   union select waiter, other from waiting, unnest(pg_blocking_pids(waiting.pid)) as other where other <> 0),
pair as (select waiter, pid from waiting where pid <> waiter and pid = any(cast(:pids as int[])))"""
_PAIR = text(f"{_WAITING} select waiter, pid from pair limit 1")
_CANCEL_WAITER = text(f"{_WAITING} select pg_cancel_backend(waiter) from pair where waiter = :waiter limit 1")
_CANCEL = text("select pg_cancel_backend(:pid)")


class PostgresLockView:
    """A view of the lock waits of sessions."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._looking = InspectionSession(engine, name)

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return which of these sessions waits for which."""
        found = self.ask(_PAIR, {"pids": list(numbers)}).first()
        return None if found is None else (found.waiter, found.pid)

    def interrupt(self, waiter: int, holder: int) -> bool:
        """Cancel the waiting statement, if it still waits: the server checks once more."""
        return self.ask(_CANCEL_WAITER, {"waiter": waiter, "pids": [waiter, holder]}).scalar() is True

    def cancel(self, number: int) -> None:
        """Cancel a session's statement."""
        self.ask(_CANCEL, {"pid": number}).close()

    def close(self) -> None:
        """Close its own session."""
        self._looking.close()

    def ask(self, question: TextClause, values: Mapping[str, object]) -> CursorResult[Any]:
        """Ask the server."""
        with edge(self._looking.name):
            return self._looking.connection.execute(question, values)


class PostgresWaits:
    """Watches one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, branch: BranchId) -> None:
        driver: Any = connection.connection.driver_connection
        self._look, self._pid = PostgresLockView(engine, name), driver.info.backend_pid
        self._prefix = f"{PREFIX}:{branch.transaction}:"

    def own_blocker(self) -> str | None:
        """Return the flow's branch that the session waits for."""
        found = self._look.ask(_BLOCKER, {"pid": self._pid, "prefix": self._prefix}).scalar()
        return None if found is None else str(found)

    def interrupt(self) -> None:
        """Cancel the waiting statement."""
        self._look.cancel(self._pid)

    def close(self) -> None:
        """Close its own session."""
        self._look.close()


def connection_of(session: EnlistedBranch) -> Connection:
    """Return the SQLAlchemy connection of an open branch."""
    handle = session.handle
    assert isinstance(handle, Connection)
    return handle
