"""
Rows of a store that contradict each other: somebody wrote or deleted them by hand, or restored a part of a backup.

The newest rows are compared, so that a look at a store with a long history costs little. What retention dropped is gone
from all tables at once, so nothing is missed there. Each finding names the first row, and the statement that mends it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import text

from txsaga.adapters.postgres.connection import transaction
from txsaga.adapters.postgres.store import PostgresStore
from txsaga.model.finding import Finding, error, ok

RECENT = 200_000
"""Messages, and numbers of transactions, that are looked at: a second for all of them."""

BLOCKED = """
SELECT t.name || '/' || q.idx, q.qid, q.head, l.base, l.txid,
       (SELECT max(base + n) FROM {s}.log e WHERE e.qid = q.qid AND e.base >= q.head)
  FROM {s}.queue q JOIN {s}.topic t ON t.id = q.topic
 CROSS JOIN LATERAL (
    SELECT base, txid FROM {s}.log WHERE log.qid = q.qid AND log.base >= q.head ORDER BY base LIMIT 1) l
 ORDER BY q.qid"""

# Row security hides rows of other groups from a producer: nothing is missing there.
SEES_ALL = "(NOT row_security_active('{s}.tx') OR {s}.everywhere())"

# Readers see it, so it was committed. What has no half either never was a message, or its body is gone.
UNDECIDED = f"""
SELECT l.txid, l.qid, l.base, (SELECT keyed FROM {{s}}.half h WHERE h.txid = l.txid LIMIT 1)
  FROM (SELECT qid, head, (SELECT count(*) FROM {{s}}.queue) AS queues FROM {{s}}.queue) q
 CROSS JOIN LATERAL (
    SELECT txid, qid, base FROM {{s}}.log
     WHERE log.qid = q.qid AND log.base < q.head AND log.base >= q.head - :recent / q.queues) l
 WHERE NOT EXISTS (SELECT FROM {{s}}.op o WHERE o.txid = l.txid) AND {SEES_ALL}
 ORDER BY l.txid, l.qid, l.base LIMIT 1000"""

UNOWNED = f"""
SELECT o.txid, o.decision, (SELECT pgroup FROM {{s}}.half h WHERE h.txid = o.txid LIMIT 1)
  FROM {{s}}.op o WHERE o.keyed AND o.txid > (SELECT last_value - :recent FROM {{s}}.tx_seq)
   AND {SEES_ALL}
   AND NOT EXISTS (SELECT FROM {{s}}.tx t WHERE t.txid = o.txid)
 ORDER BY o.txid LIMIT 1000"""


def blocked(store: PostgresStore) -> Finding:
    """Compare the log with the head of each queue: a row from there on lets no tick write to the queue."""
    found, s = _rows(store, BLOCKED)
    if not found:
        return ok("log", "every queue ends where its log ends")
    name, qid, head, base, txid, end = found[0]
    told = f"the head of queue {name} is {head}, its log has a row at {base} (transaction {txid}): its messages wait"
    return error(
        "log",
        told + _more(found),
        f"as the owner: `DELETE FROM {s}.log WHERE qid = {qid} AND base >= "
        f"(SELECT head FROM {s}.queue WHERE qid = {qid})`; only if somebody set the head back: "
        f"`UPDATE {s}.queue SET head = {end} WHERE qid = {qid} AND head = {head}`",
    )


def undecided(store: PostgresStore) -> Finding:
    """Look for messages that have offsets and no decision."""
    found, s = _rows(store, UNDECIDED)
    if not found:
        return ok("decisions", "what has offsets has a decision")
    txid, qid, base, keyed = found[0]
    if keyed is None:
        told = f"the log has a row for transaction {txid}, which is not stored"
        remedy = f"`DELETE FROM {s}.log WHERE qid = {qid} AND base = {base}`, or restore its rows of half and op"
    else:
        told = f"transaction {txid} was dispatched, and its decision is gone"
        # With an old number it counts as dispatched; with a new one it would be dispatched again.
        remedy = f"`INSERT INTO {s}.op (txid, xid, decision, keyed) VALUES ({txid}, '3', 1, {str(keyed).lower()})`"
    return error("decisions", told + _more(found), f"as the owner: {remedy}")


def unowned(store: PostgresStore) -> Finding:
    """Look for decisions about keyed transactions whose own row is gone: their key is free again."""
    found, s = _rows(store, UNOWNED)
    if not found:
        return ok("keys", "what was decided under a key keeps it")
    txid, decision, group = found[0]
    state = "committed" if decision == 1 else "rolled_back"
    return error(
        "keys",
        f"transaction {txid} is {state}, and its row of tx is gone: its key can be used again" + _more(found),
        f"as the owner, with its key: `INSERT INTO {s}.tx (txid, pgroup, key, epoch, state) "
        f"VALUES ({txid}, {group or 'GROUP'}, 'KEY', 1, '{state}')`",
    )


def _rows(store: PostgresStore, sql: str) -> tuple[list[tuple[object, ...]], str]:
    s = f'"{store.namespace}"'
    with transaction(store.engine) as connection:
        return [tuple(row) for row in connection.execute(text(sql.format(s=s)), {"recent": RECENT})], s


def _more(found: list[tuple[object, ...]]) -> str:
    return f", and {len(found) - 1} more" if found[1:] else ""


ROWS: dict[str, Callable[[PostgresStore], Finding]] = {"log": blocked, "decisions": undecided, "keys": unowned}
