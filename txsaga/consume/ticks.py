"""
The tick function: decisions newly visible in its snapshot get offsets, in the order (commit, number).

It runs with the owner's rights, so that no other login writes to the log, the ticks or the heads of queues: that would
decide what readers see. A caller chooses only how many decisions one tick takes.

A queue is blocked while its log has a row at or after its head: no tick wrote that row, and none can overwrite it. The
queue is skipped, its messages wait, and it keeps the snapshot of the last tick that included it. The first tick after
the row is gone starts from there for this queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.store import sql_files

SQL = sql_files.read("consume/sql/tick.sql")

ANSWERS = "tick int8, chunks int8, more bool, blocked int4[]"


def blockage(row: Sequence[object], s: str) -> tuple[str, str]:
    """Return what blocks a queue, from a row of `BLOCKED`, and the statement that frees it."""
    name, qid, head, base, txid, stray, end = row
    if stray:
        told = f"the head of queue {name} is {head}, its log has a stray row at {base} (transaction {txid})"
        return told, f"DELETE FROM {s}.log WHERE qid = {qid} AND base = {base}"
    told = f"the head of queue {name} was set back to {head}, its log goes on to {end}"
    return told, f"UPDATE {s}.queue SET head = {end} WHERE qid = {qid} AND head = {head}"


def channel_of(namespace: str) -> str:
    """Return the channel on which a tick announces new offsets."""
    return f"txsaga_{namespace}"


def ticking(s: str) -> str:
    """Return the function body for a (quoted) namespace."""
    span = {
        "lo": "pg_snapshot_xmax(span.since)",
        "hi": "pg_snapshot_xmax(upto)",
        "xip": "ARRAY(SELECT pg_snapshot_xip(span.since))",
        "qids": "span.qids",
        "blocked": "prior.blocked",
        "snap": "prior.snap",
    }
    news = SQL["news"].format(s=s) % {"limit": "$1"}
    give = SQL["give"].format(s=s) % span
    return SQL["tick"].format(
        s=s,
        news=news.replace("\n  FROM (SELECT id", "\n  INTO prior FROM (SELECT id", 1).strip(),
        give=give.replace("ARRAY(SELECT qid FROM w)", "ARRAY(SELECT qid FROM w) INTO gave, waiting", 1).strip(),
        channel=channel_of(s.strip('"')),
    )
