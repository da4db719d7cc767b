"""
What is still needed below a number: as long as one of these questions is answered yes, no partition below it goes.

What a drop spares (see `spared.py`) is not asked for. If a question were missing, a drop would take what somebody
has not read or settled.
"""

from __future__ import annotations

from txsaga.adapters.postgres.spared import NOT_SPARED
from txsaga.adapters.postgres.weights import BEHIND

# Is a message within what its topic keeps? Without limits it is; of two limits, either one lets it go.
KEPT = """(l.at <= clock_timestamp() - t.retention_seconds * interval '1 second') IS NOT TRUE
      AND (t.retention_bytes <= {behind}) IS NOT TRUE"""

# Is anything below :bound still needed? The cheapest question first: where a topic is kept, it is the last one.
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
    # bound to an open transaction
    """
SELECT EXISTS (SELECT FROM {s}.tx t WHERE t.txid < :bound AND t.state IN ('active', 'ended', 'prepared', 'parked')
                  AND {unspared_tx})""",
    # a resource has not acknowledged, or stands against the decision
    """
SELECT EXISTS (SELECT FROM {s}.branch b
                WHERE b.txid < :bound AND b.state NOT IN ('committed', 'rolled_back', 'forgotten')
                  AND {unspared_branch})""",
    # a saga is not undone to its end, or not done
    """
SELECT EXISTS (SELECT FROM {s}.saga g WHERE g.txid < :bound AND {unspared_saga})""",
    # the newest message of a topic is kept
    """
SELECT EXISTS (SELECT FROM {s}.topic t
                 JOIN LATERAL (SELECT max(l.at) AS at FROM {s}.log l JOIN {s}.queue q USING (qid)
                                WHERE l.txid < :bound AND q.topic = t.id) l ON l.at IS NOT NULL
                WHERE {kept})""",
    # a group has not read it; where no group reads, there is nobody to wait for
    """
SELECT EXISTS (SELECT FROM {s}.log l
                WHERE l.txid < :bound
                  AND l.base + l.n > (SELECT min(least(c.off, (SELECT min(k.base) FROM {s}.claim k
                                              WHERE k.grp = c.grp AND k.qid = c.qid AND k.message IS NULL)))
                                        FROM {s}.cursor c WHERE c.qid = l.qid))""",
    # not given out
    """
SELECT EXISTS (SELECT FROM {s}.op o JOIN {s}.half h USING (txid) WHERE o.txid < :bound AND o.decision = 1
                  AND NOT EXISTS (SELECT FROM {s}.log l WHERE l.qid = h.qid AND l.txid = h.txid)
                  AND (NOT o.keyed OR EXISTS (SELECT FROM {s}.part p
                        WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt)))""",
)


def needed(s: str) -> list[str]:
    """Write the questions whether anything below :bound is still needed."""
    parts = {
        "kept": KEPT.format(behind=BEHIND.format(s=s)),
        "unspared_half": NOT_SPARED.format(s=s, txid="h.txid"),
        "unspared_branch": NOT_SPARED.format(s=s, txid="b.txid"),
        "unspared_saga": NOT_SPARED.format(s=s, txid="g.txid"),
        "unspared_tx": NOT_SPARED.format(s=s, txid="t.txid"),
    }
    return [sql.format(s=s, **parts).strip() for sql in NEEDED]
