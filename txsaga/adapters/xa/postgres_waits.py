"""Whether a session in PostgreSQL waits for what its own flow or transaction holds, directly or behind others.

A prepared transaction has no session: what waits for one is found by the lock that it asks for and the one that is
held under no process, and that one's number by the lock that it holds on itself. It only looks, in a session of its
own; what it cancels is the one statement that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, TextClause, text

from txsaga.adapters.evidence.answers import edge
from txsaga.adapters.xa.looking import Looking
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
_WAITING = """
with recursive waiting(waiter, pid) as (
  select asked, asked from unnest(cast(:pids as int[])) as asked
   union select waiter, other from waiting, unnest(pg_blocking_pids(waiting.pid)) as other where other <> 0),
pair as (select waiter, pid from waiting where pid <> waiter and pid = any(cast(:pids as int[])))"""
_PAIR = text(f"{_WAITING} select waiter, pid from pair limit 1")
_CANCEL_WAITER = text(f"{_WAITING} select pg_cancel_backend(waiter) from pair where waiter = :waiter limit 1")
_CANCEL = text("select pg_cancel_backend(:pid)")


class PostgresLook:
    """A look at sessions."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._looking = Looking(engine, name)

    def blocked(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return who waits for whom of these."""
        found = self.ask(_PAIR, {"pids": list(numbers)}).first()
        return None if found is None else (found.waiter, found.pid)

    def interrupt(self, waiter: int, holder: int) -> bool:
        """Cancel the statement that waits, if it still does: the server looks once more."""
        return self.ask(_CANCEL_WAITER, {"waiter": waiter, "pids": [waiter, holder]}).scalar() is True

    def cancel(self, number: int) -> None:
        """Cancel what a session does."""
        self.ask(_CANCEL, {"pid": number}).close()

    def close(self) -> None:
        """Close the own session."""
        self._looking.close()

    def ask(self, question: TextClause, values: Mapping[str, object]) -> CursorResult[Any]:
        """Ask the server."""
        with edge(self._looking.name):
            return self._looking.connection.execute(question, values)


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
        self._look.cancel(self._pid)

    def close(self) -> None:
        """Give the own session back."""
        self._look.close()


def connection_of(session: Enlisted) -> Connection:
    """Return the SQLAlchemy connection of an open branch."""
    handle = session.handle
    assert isinstance(handle, Connection)
    return handle
