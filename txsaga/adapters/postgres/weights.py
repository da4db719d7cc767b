"""
How many bytes each topic has in a full partition: retention by size goes by them.

A partition is weighed once, when a tick has passed its last number. What was undecided then is not counted, so a
topic keeps rather too much than too little. If nobody weighs, nothing goes by its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, text

from txsaga.adapters.postgres.connection import transaction

FULL_BELOW = """
SELECT last_txid + 1 FROM {s}.tick WHERE EXISTS (SELECT FROM {s}.topic WHERE retention_bytes IS NOT NULL)
 ORDER BY id DESC LIMIT 1"""
WEIGHED = "SELECT DISTINCT low FROM {s}.weight"

# Every topic gets a row, so that a partition in which nobody was given an offset counts as weighed too.
WEIGH = """
INSERT INTO {s}.weight (low, topic, bytes, first)
SELECT :low, t.id, coalesce(sum(octet_length(h.body)), 0), min(l.at) FROM {s}.topic t
  LEFT JOIN ({s}.queue q
             JOIN {s}.log l ON l.qid = q.qid AND l.txid >= :low AND l.txid < :high
             JOIN {s}.half h ON (h.txid, h.part, h.attempt, h.qid, h.chunk) 
                              = (l.txid, l.part, l.attempt, l.qid, l.chunk)
                            AND h.txid >= :low AND h.txid < :high) ON q.topic = t.id
 GROUP BY t.id ON CONFLICT DO NOTHING"""

# Behind a message lies what got its offset later: an old number that was decided late has new ones before it.
BEHIND = """(SELECT coalesce(sum(w.bytes), 0) FROM {s}.weight w
              WHERE w.topic = t.id AND w.low >= :bound AND w.first >= l.at)"""


def weigh(engine: Engine, namespace: str, bounds: Sequence[tuple[int, int]]) -> None:
    """Weigh the partitions that became full, if a topic is kept by size."""
    s = f'"{namespace}"'
    with transaction(engine) as connection:
        full_below = connection.execute(text(FULL_BELOW.format(s=s))).scalar_one_or_none() or 0
        full = [(low, high) for low, high in bounds if high <= full_below]
        weighed = set(connection.execute(text(WEIGHED.format(s=s))).scalars()) if full else set()
        for low, high in full:
            if low not in weighed:
                connection.execute(text(WEIGH.format(s=s)), {"low": low, "high": high})
