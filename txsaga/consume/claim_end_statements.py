"""
The end of one claimed message that was not acknowledged: it is redelivered, buried, or bound to a transaction.

Each statement runs in the caller's database transaction, on a row of its own: a message of a run is first taken out of
it. Otherwise the other messages of the run would share its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text

from txsaga.consume.claim import Burial, Claim
from txsaga.consume.dead_letter import rolled_back
from txsaga.errors import ClaimLost

MINE = "grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt"
HELD = MINE + " AND until > clock_timestamp() AND txid IS NULL"

LOCK = "SELECT attempts FROM {s}.claim WHERE {held} AND open & :open = :open FOR UPDATE"
LEAVE_RUN = "UPDATE {s}.claim SET open = open & ~:open WHERE {mine}"
END_RUN = "DELETE FROM {s}.claim WHERE {mine} AND open = 0"
ALONE = """
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
SELECT grp, qid, CAST(:alone AS bigint), 1, 1, attempts, until, receipt, member, history FROM {s}.claim WHERE {mine}"""

# Keep the first cause and the last ones: the history of endless redelivery must not grow for ever.
ENTRY = """coalesce(CASE WHEN jsonb_array_length(history) < 20 THEN history ELSE history - 1 END, '[]')
  || jsonb_build_array(jsonb_build_object(
    'at', clock_timestamp(), 'member', member, 'attempts', attempts, 'cause', CAST(:cause AS text)))"""
PUT_BACK = (
    "UPDATE {s}.claim SET until = clock_timestamp() + :delay, receipt = NULL, history = " + ENTRY + " WHERE {mine}"
)

GIVE_BACK = """
UPDATE {s}.claim SET until = clock_timestamp(), receipt = NULL, attempts = attempts - 1 WHERE {held}"""
EXTEND = "UPDATE {s}.claim SET until = clock_timestamp() + :by WHERE {held} AND open & :open <> 0"

# Messages given back from a run get a claim each: a consumer that asks for few gets few.
LOCK_SOME = "SELECT open FROM {s}.claim WHERE {held} AND open & :open <> 0 FOR UPDATE"
APART = """
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, history)
SELECT r.grp, r.qid, r.base + i, 1, 1, r.attempts - 1, clock_timestamp(), r.history
  FROM (SELECT * FROM {s}.claim WHERE {mine}) r, generate_series(0, r.size - 1) i
 WHERE (r.open & :open) >> i & 1 = 1"""

DEAD = (
    """
WITH gone AS (
    DELETE FROM {s}.claim WHERE {mine}
    RETURNING grp, qid, base, attempts - CAST(:uncounted AS int) AS attempts, member, history)
INSERT INTO {s}.dead_letter (grp, topic, qid, off, attempts, cause, history, message, born, body)
SELECT grp, CAST(:topic AS text), qid, base, attempts, CAST(:cause AS text), """
    + ENTRY
    + """, :message, :born, :body FROM gone
ON CONFLICT (grp, qid, off) DO UPDATE SET at = clock_timestamp(), attempts = excluded.attempts,
   cause = excluded.cause, history = excluded.history, body = excluded.body"""
)
BACKED_OUT = """
WITH gone AS (DELETE FROM {s}.claim WHERE {mine} RETURNING 1),
 h AS (INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body)
       SELECT nextval('{s}.tx_seq'), 0, :to, 0, 1, :body FROM gone RETURNING txid)
INSERT INTO {s}.op (txid, decision) SELECT txid, 1 FROM h"""

BACK_OUT = "SELECT {s}.back_out(:grp, :qid, :base, :size, :receipt, :to, :body)"
"""The same, for a login that does not own the namespace."""

# One statement: with two, the second would delete a letter replayed in between without storing it as dead again.
FORGOTTEN = """
WITH gone AS (
    DELETE FROM {s}.claim WHERE grp = :grp AND (CAST(:qids AS int[]) IS NULL OR qid = ANY (:qids)) RETURNING *)
INSERT INTO {s}.dead_letter (grp, topic, qid, off, attempts, cause, history, message, born, body)
SELECT grp, t.name, qid, base, attempts, CAST(:why AS text), coalesce(history, '[]'), message, born, body
  FROM gone JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic WHERE message IS NOT NULL
ON CONFLICT DO NOTHING"""

EACH_ALONE = """
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
SELECT r.grp, r.qid, r.base + i, 1, 1, r.attempts, r.until, r.receipt, r.member, r.history
  FROM (SELECT * FROM {s}.claim WHERE {mine}) r, generate_series(0, r.size - 1) i
 WHERE CAST(:open AS bigint) >> i & 1 = 1"""
BIND_EACH = """
UPDATE {s}.claim SET txid = :txid, retry = :retry, until = 'infinity'
 WHERE grp = :grp AND qid = :qid AND base = ANY (:alone) AND size = 1 AND receipt = :receipt"""
BIND = "UPDATE {s}.claim SET txid = :txid, retry = :retry, until = 'infinity' WHERE {mine}"
COMMITTED = "DELETE FROM {s}.claim WHERE txid = :txid"
ROLLED_BACK = (
    """
UPDATE {s}.claim SET txid = NULL, receipt = NULL, until = clock_timestamp() + retry, history = """
    + ENTRY
    + " WHERE txid = :txid"
)


def mine(claim: Claim) -> dict[str, Any]:
    """Return a claim's parameters."""
    names = {"grp": claim.group, "qid": claim.qid, "base": claim.base, "size": claim.size}
    return {**names, "receipt": claim.receipt}


def single_out(connection: Connection, schema: str, claim: Claim, then: str, **values: object) -> None:
    """Move the one open message of a claim to a row of its own, and run a statement on that row."""
    named = _held(connection, schema, claim)
    if claim.size > 1 and claim.copy is None:
        alone = next(claim.offsets())
        connection.execute(_text(ALONE, schema), {**mine(claim), "alone": alone})
        connection.execute(_text(LEAVE_RUN, schema), named)
        connection.execute(_text(END_RUN, schema), mine(claim))
        claim = claim._replace(base=alone, size=1, open=1)
    connection.execute(_text(then, schema), {**mine(claim), **values})


def extend(connection: Connection, schema: str, claim: Claim, by: timedelta) -> bool:
    """Extend a claim to this long from now; return False when it is lost."""
    named = {**mine(claim), "open": claim.open, "by": by}
    return connection.execute(_text(EXTEND, schema), named).rowcount > 0


def put_back(connection: Connection, schema: str, claim: Claim, delay: timedelta, cause: str) -> None:
    """Put a message back for redelivery."""
    single_out(connection, schema, claim, PUT_BACK, delay=delay, cause=cause)


def give_back(connection: Connection, schema: str, claim: Claim) -> None:
    """Put messages back, uncounted."""
    named = {**mine(claim), "open": claim.open}
    if claim.size == 1 or claim.copy is not None:
        connection.execute(_text(GIVE_BACK, schema), mine(claim))
    elif connection.execute(_text(LOCK_SOME, schema), named).one_or_none() is not None:
        for step in (APART, LEAVE_RUN, END_RUN):
            connection.execute(_text(step, schema), named)


def bury(connection: Connection, schema: str, claim: Claim, burial: Burial, *, owner: bool) -> None:
    """Remove a message from the group, to a backout queue or the dead letters."""
    copy = burial.copy
    if burial.backout is None:
        values = {**copy._asdict(), "uncounted": burial.uncounted}
        single_out(connection, schema, claim, DEAD, topic=burial.topic, cause=burial.cause, **values)
    else:
        backed_out = BACKED_OUT if owner else BACK_OUT
        single_out(connection, schema, claim, backed_out, to=burial.backout, body=copy.body)


def forget(connection: Connection, schema: str, group: str, qids: Sequence[int] | None, why: str) -> None:
    """Drop a group's claims, on some queues or on all; a replayed message has no other copy, so it is dead again."""
    connection.execute(_text(FORGOTTEN, schema), {"grp": group, "qids": qids, "why": why})


def bind(connection: Connection, schema: str, claim: Claim, txid: int, retry: timedelta) -> None:
    """Bind the open messages of a claim to a transaction: only its decision ends their claim."""
    named = {**_held(connection, schema, claim), "txid": txid, "retry": retry, "alone": list(claim.offsets())}
    run = claim.size > 1 and claim.copy is None
    for step in (EACH_ALONE, LEAVE_RUN, END_RUN, BIND_EACH) if run else (BIND,):
        connection.execute(_text(step, schema), named)


def decided(connection: Connection, schema: str, txid: int, *, why: str | None) -> None:
    """Remove a transaction's messages from their groups; with a reason (it did not commit), redeliver them."""
    if why is None:
        connection.execute(_text(COMMITTED, schema), {"txid": txid})
    else:
        connection.execute(_text(ROLLED_BACK, schema), {"txid": txid, "cause": rolled_back(txid, why)})


def _held(connection: Connection, schema: str, claim: Claim) -> dict[str, Any]:
    """Lock a claim, or raise `ClaimLost`; return the parameters of its open messages."""
    named = {**mine(claim), "open": claim.open}
    if connection.execute(_text(LOCK, schema), named).one_or_none() is None:
        raise ClaimLost(
            f"the claim on message {next(claim.offsets())} of queue {claim.qid} in group {claim.group!r} ran out; "
            "the message comes again"
        )
    return named


def _text(sql: str, schema: str) -> Any:
    return text(sql.format(s=schema, mine=MINE, held=HELD))
