"""
What is still needed below a transaction number: while one of these queries is true, no partition below it is dropped.

Rows that a drop spares (see `NOT_SPARED`) do not count as needed. If a query were missing, a drop would delete what
has not been read or settled.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, text

from txsaga.store import schema
from txsaga.store.connection import transaction

SHARE = 10
"""At most one row in this many of a partition is copied, and at most one row per this many of its numbers."""
BYTES = 256 * 1024 * 1024
"""Bytes of bodies copied at most: a decision about one of them waits for the copy."""
FAR = "interval '1 hour'"
"""What is due sooner keeps its partition."""

NOT_SPARED = f"""NOT EXISTS (SELECT FROM {{s}}.doubt d WHERE d.txid = {{txid}} AND d.parked IS NOT NULL)
      AND NOT EXISTS (SELECT FROM {{s}}.scheduled w WHERE w.txid = {{txid}} AND w.at > clock_timestamp() + {FAR})"""

# Is anything spared between :low and :bound? If not, no half and no decision is read.
SOME = f"""
SELECT EXISTS (SELECT FROM {{s}}.doubt d WHERE d.txid >= :low AND d.txid < :bound AND d.parked IS NOT NULL)
    OR EXISTS (SELECT FROM {{s}}.scheduled w
                WHERE w.txid >= :low AND w.txid < :bound AND w.at > clock_timestamp() + {FAR})"""

# Is anything spared in this partition that is not to be copied? It may be all there is, or too much.
LEFT = f"""
WITH k AS MATERIALIZED (
    SELECT txid FROM (
        SELECT d.txid FROM {{s}}.doubt d WHERE d.txid >= :low AND d.txid < :bound AND d.parked IS NOT NULL
        UNION ALL
        SELECT w.txid FROM {{s}}.scheduled w
         WHERE w.txid >= :low AND w.txid < :bound AND w.at > clock_timestamp() + {FAR}) x
     WHERE NOT EXISTS (SELECT FROM {{s}}.op o WHERE o.txid = x.txid AND o.txid >= :low AND o.txid < :bound)
     LIMIT {{most}} + 1),
 r AS MATERIALIZED (
    SELECT octet_length(h.body) AS size FROM k JOIN {{s}}.half h USING (txid)
     WHERE h.txid >= :low AND h.txid < :bound LIMIT {{most}} + 1)
SELECT EXISTS (SELECT FROM k) AND NOT (
    EXISTS (SELECT FROM {{s}}.op o WHERE o.txid >= :low AND o.txid < :bound)
    AND (SELECT count(*) FROM k) <= {{most}}
    AND (SELECT count(*) <= {{most}} AND coalesce(sum(size), 0) <= {{bytes}} FROM r)
    AND (SELECT count(*) FROM (
            SELECT FROM {{s}}.half h WHERE h.txid >= :low AND h.txid < :bound
             LIMIT {SHARE} * (SELECT count(*) FROM r)) a)
        >= {SHARE} * (SELECT count(*) FROM r))"""

# Asked when the partition is locked against writers and nothing in it is needed: all that is undecided is spared then.
# So that is what is copied, including a transaction that was resumed since the last check.
SPARES = """
SELECT EXISTS (SELECT FROM {s}.half h WHERE h.txid >= :low AND h.txid < :bound
                  AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = h.txid))
    OR EXISTS (SELECT FROM {s}.tx t WHERE t.txid >= :low AND t.txid < :bound
                  AND t.state IN ('active', 'ended', 'prepared', 'parked'))"""
COPY = """
INSERT INTO {s}.%I SELECT h.* FROM {s}.half h
 WHERE h.txid >= %s AND h.txid < %s AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = h.txid)"""

# Rows of a transaction in other tables are deleted if no half of it was copied, and it is not open.
NOBODYS = """NOT EXISTS (SELECT FROM {s}.%I h WHERE h.txid = x.txid)
 AND NOT EXISTS (SELECT FROM {s}.tx t WHERE t.txid = x.txid
                    AND t.state IN (''active'', ''ended'', ''prepared'', ''parked''))"""


def some(s: str) -> str:
    """Return SQL that asks whether anything from :low to :bound is spared."""
    return SOME.format(s=s).strip()


def left(s: str) -> str:
    """Return SQL that asks whether the partition from :low to :bound is left as it is."""
    return LEFT.format(s=s, most=schema.SPAN // SHARE, bytes=BYTES).strip()


FULL_BELOW = """
SELECT last_txid + 1 FROM {s}.tick WHERE EXISTS (SELECT FROM {s}.topic WHERE retention_bytes IS NOT NULL)
 ORDER BY id DESC LIMIT 1"""
WEIGHED = "SELECT DISTINCT low FROM {s}.weight"

# Every topic gets a row, so that a partition without an assigned offset counts as weighed too.
WEIGH = """
INSERT INTO {s}.weight (low, topic, bytes, first)
SELECT :low, t.id, coalesce(sum(octet_length(h.body)), 0), min(l.at) FROM {s}.topic t
  LEFT JOIN ({s}.queue q
             JOIN {s}.log l ON l.qid = q.qid AND l.txid >= :low AND l.txid < :high
             JOIN {s}.half h ON (h.txid, h.part, h.attempt, h.qid, h.chunk) 
                              = (l.txid, l.part, l.attempt, l.qid, l.chunk)
                            AND h.txid >= :low AND h.txid < :high) ON q.topic = t.id
 GROUP BY t.id ON CONFLICT DO NOTHING"""

# What got its offset later counts as newer: an old transaction that was decided late comes after new ones.
BEHIND = """(SELECT coalesce(sum(w.bytes), 0) FROM {s}.weight w
              WHERE w.topic = t.id AND w.low >= :bound AND w.first >= l.at)"""


def weigh(engine: Engine, namespace: str, bounds: Sequence[tuple[int, int]]) -> None:
    """Store the sizes of partitions that became full, if a topic is kept by size."""
    s = f'"{namespace}"'
    with transaction(engine) as connection:
        full_below = connection.execute(text(FULL_BELOW.format(s=s))).scalar_one_or_none() or 0
        full = [(low, high) for low, high in bounds if high <= full_below]
        weighed = set(connection.execute(text(WEIGHED.format(s=s))).scalars()) if full else set()
        for low, high in full:
            if low not in weighed:
                connection.execute(text(WEIGH.format(s=s)), {"low": low, "high": high})


# Is a message within its topic's limits? Without limits it is; of two, either one releases it.
KEPT = """(l.at <= clock_timestamp() - t.retention_seconds * interval '1 second') IS NOT TRUE
      AND (t.retention_bytes <= {behind}) IS NOT TRUE"""

# Is anything below :bound still needed? The cheapest query first: if it finds one, no other runs.
NEEDED = (
    # the oldest message of a queue is kept
    """
SELECT EXISTS (SELECT FROM {s}.queue q JOIN {s}.topic t ON t.id = q.topic
                 JOIN LATERAL (SELECT txid, at FROM {s}.log l WHERE l.qid = q.qid ORDER BY l.base LIMIT 1) l ON true
                WHERE l.txid < :bound AND {kept})""",
    # undecided
    """
SELECT EXISTS (SELECT FROM {s}.half h WHERE h.txid < :bound
                  AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = h.txid) AND {unspared_half})""",
    # a transaction is open
    """
SELECT EXISTS (SELECT FROM {s}.tx t WHERE t.txid < :bound AND t.state IN ('active', 'ended', 'prepared', 'parked')
                  AND {unspared_tx})""",
    # a branch is not finished, or was settled against the decision
    """
SELECT EXISTS (SELECT FROM {s}.branch b
                WHERE b.txid < :bound AND b.state NOT IN ('committed', 'rolled_back', 'forgotten')
                  AND {unspared_branch})""",
    # a saga is not completely done or undone
    """
SELECT EXISTS (SELECT FROM {s}.saga g WHERE g.txid < :bound AND {unspared_saga})""",
    # the newest message of a topic is kept
    """
SELECT EXISTS (SELECT FROM {s}.topic t
                 JOIN LATERAL (SELECT max(l.at) AS at FROM {s}.log l JOIN {s}.queue q USING (qid)
                                WHERE l.txid < :bound AND q.topic = t.id) l ON l.at IS NOT NULL
                WHERE {kept})""",
    # a consumer group has not read it; without any group there is nothing to wait for
    """
SELECT EXISTS (SELECT FROM {s}.log l
                WHERE l.txid < :bound
                  AND l.base + l.n > (SELECT min(least(c.off, (SELECT min(k.base) FROM {s}.claim k
                                              WHERE k.grp = c.grp AND k.qid = c.qid AND k.message IS NULL)))
                                        FROM {s}.cursor c WHERE c.qid = l.qid))""",
    # committed, without an offset
    """
SELECT EXISTS (SELECT FROM {s}.op o JOIN {s}.half h USING (txid) WHERE o.txid < :bound AND o.decision = 1
                  AND NOT EXISTS (SELECT FROM {s}.log l WHERE l.qid = h.qid AND l.txid = h.txid)
                  AND (NOT o.keyed OR EXISTS (SELECT FROM {s}.part p
                        WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt)))""",
)


def needed(s: str) -> list[str]:
    """Return the queries that ask whether anything below :bound is still needed."""
    parts = {
        "kept": KEPT.format(behind=BEHIND.format(s=s)),
        "unspared_half": NOT_SPARED.format(s=s, txid="h.txid"),
        "unspared_branch": NOT_SPARED.format(s=s, txid="b.txid"),
        "unspared_saga": NOT_SPARED.format(s=s, txid="g.txid"),
        "unspared_tx": NOT_SPARED.format(s=s, txid="t.txid"),
    }
    return [sql.format(s=s, **parts).strip() for sql in NEEDED]
