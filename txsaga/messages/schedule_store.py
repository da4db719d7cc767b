"""
Delayed messages on PostgreSQL: due messages get their COMMIT and leave the schedule, in one transaction.

A tick assigns offsets by (commit, number), so for each queue one round takes only messages whose numbers ascend in due
order; one with a lower number that is due later gets a later commit. One round runs at a time: the statement takes a
lock. If no process runs it, messages wait and nothing is lost.
"""

from __future__ import annotations

from sqlalchemy import Engine

from txsaga.errors import StoreUnavailable
from txsaga.store import sql_files
from txsaga.store.pipeline import ConnectionLost, PipelineConnection
from txsaga.store.statement import PreparedStatement

SQL = sql_files.read("messages/sql/schedule.sql")


class Schedule:
    """The schedule of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._line = PipelineConnection(engine)
        self._commit_due = PreparedStatement.of(SQL["commit_due"].format(s=f'"{namespace}"'), ("int4",))

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` due messages; return how many left the schedule.

        Later ticks assign their offsets, in each queue in due order, whatever order they were sent in. The first
        decision is final: an already decided message only leaves the schedule. Return 0 if nothing is due, or if
        another process is doing it.
        """
        with self._line.lock:
            try:
                (((count,),),) = self._line.exchange([self._commit_due.call(limit)])
            except ConnectionLost as lost:
                raise StoreUnavailable(f"the home database went away in a round of the schedule: {lost}") from lost
        return int(count)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()
