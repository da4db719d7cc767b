"""Whether a session in PostgreSQL waits for what its own flow or transaction holds, directly or behind others.

A prepared transaction has no session: what waits for one is found by the lock that it asks for and the one that is
held under no process, and that one's number by the lock that it holds on itself. It only looks, in a session of its
own; what it cancels is the one statement that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from txsaga.adapters.evidence.answers import edge
from txsaga.errors import StoreBusy
from txsaga.model.branch import PREFIX, BranchId
from txsaga.ports.participants import Enlisted

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
_PAIR = text("""
with recursive waiting(waiter, pid) as (
  select asked, asked from unnest(cast(:pids as int[])) as asked
   union select waiter, other from waiting, unnest(pg_blocking_pids(waiting.pid)) as other where other <> 0)
select waiter, pid from waiting where pid <> waiter and pid = any(cast(:pids as int[])) limit 1""")
_CANCEL = text("select pg_cancel_backend(:pid)")


class PostgresLook:
    """A look at sessions."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._own: Connection | None = None

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return who waits for whom of these."""
        found = self.ask(_PAIR, {"pids": list(numbers)}).first()
        return None if found is None else (found.waiter, found.pid)

    def interrupt(self, number: int) -> None:
        """Cancel the statement that waits."""
        self.ask(_CANCEL, {"pid": number}).close()

    def close(self) -> None:
        """Give the own session back."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def ask(self, question: TextClause, values: Mapping[str, object]) -> CursorResult[Any]:
        """Ask the server."""
        with edge(self._name):
            if self._own is None:
                self._own = opened(self._engine, self._name)
            return self._own.execute(question, values)


class PostgresWaits:
    """An eye on one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, branch: BranchId) -> None:
        driver: Any = connection.connection.driver_connection
        self._look, self._pid = PostgresLook(engine, name), driver.info.backend_pid
        self._prefix = f"{PREFIX}:{branch.transaction}:"

    def own_blocker(self) -> str | None:
        """Return the branch that the session waits for."""
        found = self._look.ask(_BLOCKER, {"pid": self._pid, "prefix": self._prefix}).scalar()
        return None if found is None else str(found)

    def interrupt(self) -> None:
        """Cancel the statement that waits."""
        self._look.interrupt(self._pid)

    def close(self) -> None:
        """Give the own session back."""
        self._look.close()


def opened(engine: Engine, name: str) -> Connection:
    """Open a session to look with; a pool that has no other is no reason to wait for it."""
    try:
        with edge(name):
            return engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    except (PoolTimeout, DBAPIError) as error:
        raise StoreBusy(f"no session of {name!r} is free to look with") from error


def connection_of(session: Enlisted) -> Connection:
    """Return the SQLAlchemy connection of an open branch."""
    handle = session.handle
    assert isinstance(handle, Connection)
    return handle
