"""Whether a session in PostgreSQL waits for a prepared transaction of its own flow, directly or behind other sessions.

A prepared transaction has no session: what waits for one is found by the lock that it asks for and the one that is
held under no process, and that one's number by the lock that it holds on itself. It only looks, in a session of its
own; what it cancels is the one statement that waits.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, text
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


class PostgresWaits:
    """An eye on one session."""

    def __init__(self, engine: Engine, name: str, connection: Connection, branch: BranchId) -> None:
        driver: Any = connection.connection.driver_connection
        self._engine, self._name = engine, name
        self._values = {"pid": driver.info.backend_pid, "prefix": f"{PREFIX}:{branch.transaction}:"}
        self._own: Connection | None = None

    def own_blocker(self) -> str | None:
        """Return the branch that the session waits for."""
        with edge(self._name):
            found = self._connected().execute(_BLOCKER, self._values).scalar()
        return None if found is None else str(found)

    def interrupt(self) -> None:
        """Cancel the statement that waits."""
        with edge(self._name):
            self._connected().execute(text("select pg_cancel_backend(:pid)"), {"pid": self._values["pid"]}).close()

    def close(self) -> None:
        """Give the own session back."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _connected(self) -> Connection:
        if self._own is None:
            self._own = opened(self._engine, self._name)
        return self._own


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
