"""
What the drop of a partition spares: transactions that are parked, or due far ahead.

A partition that is held by nothing else goes, and a small one with the same bounds takes its place, with copies of
their rows: all in the one transaction of the drop, so whoever is killed in it has done nothing. It is worth that only
where they are few; otherwise the partition is left whole until more of them are settled. What is left, whole or
copied, holds no partition behind it. If this never runs, one parked transaction keeps everything that is as old.
"""

from __future__ import annotations

from txsaga.adapters.postgres import schema

SHARE = 10
"""Of the rows of a partition, one in so many at most is copied; no more rows than of all its numbers."""
BYTES = 256 * 1024 * 1024
"""Bodies that are copied at most: who decides one of them waits for the copy."""
FAR = "interval '1 hour'"
"""What is due sooner is waited for."""

NOT_SPARED = f"""NOT EXISTS (SELECT FROM {{s}}.doubt d WHERE d.txid = {{txid}} AND d.parked IS NOT NULL)
      AND NOT EXISTS (SELECT FROM {{s}}.scheduled w WHERE w.txid = {{txid}} AND w.at > clock_timestamp() + {FAR})"""

# Is anything spared between :low and :bound? Where nothing is, no half and no decision is looked at.
SOME = f"""
SELECT EXISTS (SELECT FROM {{s}}.doubt d WHERE d.txid >= :low AND d.txid < :bound AND d.parked IS NOT NULL)
    OR EXISTS (SELECT FROM {{s}}.scheduled w
                WHERE w.txid >= :low AND w.txid < :bound AND w.at > clock_timestamp() + {FAR})"""

# Is anything spared in this partition that is not to be copied? There may be nothing beside it, or too much of it.
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

# Asked when nobody may write to the partition and nothing in it is needed: all that is undecided is spared then. So
# that is what is copied, and one that was resumed since the last look goes along.
SPARES = """
SELECT EXISTS (SELECT FROM {s}.half h WHERE h.txid >= :low AND h.txid < :bound
                  AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = h.txid))
    OR EXISTS (SELECT FROM {s}.tx t WHERE t.txid >= :low AND t.txid < :bound
                  AND t.state IN ('active', 'ended', 'prepared', 'parked'))"""
COPY = """
INSERT INTO {s}.%I SELECT h.* FROM {s}.half h
 WHERE h.txid >= %s AND h.txid < %s AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = h.txid)"""

# Rows of a transaction in other tables go where no half of it was copied, and it is not open.
NOBODYS = """NOT EXISTS (SELECT FROM {s}.%I h WHERE h.txid = x.txid)
 AND NOT EXISTS (SELECT FROM {s}.tx t WHERE t.txid = x.txid
                    AND t.state IN (''active'', ''ended'', ''prepared'', ''parked''))"""


def some(s: str) -> str:
    """Write the question whether anything from :low to :bound is spared."""
    return SOME.format(s=s).strip()


def left(s: str) -> str:
    """Write the question whether the partition from :low to :bound is left as it is."""
    return LEFT.format(s=s, most=schema.SPAN // SHARE, bytes=BYTES).strip()
