"""
Delayed messages on PostgreSQL: due messages get their COMMIT and leave the schedule, in one transaction.

A tick assigns offsets by (commit, number), so for each queue one round takes only messages whose numbers ascend in due
order; one with a lower number that is due later gets a later commit. One round runs at a time: the statement takes a
lock. If no process runs it, messages wait and nothing is lost.
"""

from __future__ import annotations

from sqlalchemy import Engine

from txsaga.errors import StoreUnavailable
from txsaga.store.pipeline import ConnectionLost, PipelineConnection

# The clock is read once: read per row, the index scan would have no upper bound. Decisions are inserted before rows are
# deleted, and in the order of their numbers, as in a recall: two that meet may wait, but never deadlock.
COMMIT_DUE = """
WITH due AS MATERIALIZED (
    SELECT w.txid, w.at, h.qid
      FROM (SELECT txid, at FROM {s}.scheduled
             WHERE at <= (SELECT clock_timestamp())
               AND (SELECT pg_try_advisory_xact_lock(hashtextextended('{s}.schedule', 0)))
             ORDER BY at, txid LIMIT %(limit)s) w
      JOIN LATERAL (SELECT qid FROM {s}.half WHERE half.txid = w.txid LIMIT 1) h ON true),
 f AS (
    SELECT txid, qid, at, txid < max(txid) OVER (
               PARTITION BY qid ORDER BY at, txid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS falls
      FROM due),
 mine AS MATERIALIZED (
    SELECT txid FROM (SELECT txid, bool_or(falls) OVER (PARTITION BY qid ORDER BY at, txid) AS fell FROM f) g
     WHERE fell IS NOT TRUE),
 o AS (
    INSERT INTO {s}.op (txid, decision) SELECT txid, 1 FROM mine ORDER BY txid ON CONFLICT (txid) DO NOTHING
    RETURNING 1),
 d AS (
    DELETE FROM {s}.scheduled WHERE txid = ANY (ARRAY(SELECT txid FROM mine)) AND (SELECT count(*) FROM o) >= 0
    RETURNING 1)
SELECT count(*) FROM d"""


class Schedule:
    """The schedule of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._line = PipelineConnection(engine)
        self._commit_due = COMMIT_DUE.format(s=f'"{namespace}"').strip()

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` due messages; return how many left the schedule.

        Later ticks assign their offsets, in each queue in due order, whatever order they were sent in. The first
        decision is final: an already decided message only leaves the schedule. Return 0 if nothing is due, or if
        another process is doing it.
        """
        with self._line.lock:
            try:
                ((count,),) = self._line.execute(self._commit_due, {"limit": limit})
            except ConnectionLost as lost:
                raise StoreUnavailable(f"the home database went away in a round of the schedule: {lost}") from lost
        return int(count)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()
