"""
The hot statements, written for one namespace: prepare, publish, schedule, decide, recall, tick, fetch, sweep.

They are plain SQL; those with numbered parameters go straight to the server by `Line.exchange`. Nothing here updates
or deletes but one queue row per queue and tick, and what is recalled. Their plans are held by tests. They run under
`plan_cache_mode = force_generic_plan`: planning anew each time costs more than running them.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Source(NamedTuple):
    """Where the rows of a batch come from: numbered parameters of these types, from `first` on."""

    first: int
    types: tuple[str, ...]

    @property
    def many(self) -> str:
        """An array for each column."""
        return f"unnest({', '.join(f'${number}' for number, _ in self._numbered)})"

    @property
    def one(self) -> str:
        """One row of plain values: a lone caller pays for no array."""
        return f"(VALUES ({', '.join(f'${number}::{type}' for number, type in self._numbered)}))"

    @property
    def _numbered(self) -> list[tuple[int, str]]:
        return list(enumerate(self.types, self.first))


class Form(NamedTuple):
    """A statement for one row and for many."""

    one: str
    many: str

    def of(self, count: int) -> str:
        """Return the statement for so many rows."""
        return self.one if count == 1 else self.many


TOKEN = """sha256((SELECT token_outer FROM {s}.store)
    || sha256((SELECT token_inner FROM {s}.store) || int4send({group}) || int8send({txid})))"""
# The same for one row, with one look at the keys.
TOKEN_OF_ONE = (
    """(SELECT sha256(token_outer || sha256(token_inner || int4send({group}) || int8send({txid}))) FROM {s}.store)"""
)

_INSERT = """
INSERT INTO {s}.half (txid, batch, pgroup, qid, chunk, n, evidence, immunity, body)
SELECT CASE WHEN x.first THEN nextval('{s}.tx_seq') ELSE currval('{s}.tx_seq') END,
       $1, x.pgroup, x.qid, x.chunk, x.n, x.evidence, x.immunity, x.body
  FROM {rows} AS x(first, pgroup, qid, chunk, n, evidence, immunity, body)"""
ROWS = Source(2, ("bool", "int4", "int4", "int4", "int4", "int4", "int4", "bytea"))

PREPARE = (
    _INSERT
    + """
 CROSS JOIN {s}.store WHERE NOT store.rejecting
RETURNING txid, {token}"""
)

PUBLISH = (
    "WITH h AS ("
    + _INSERT
    + """
RETURNING txid, pgroup),
 o AS (INSERT INTO {s}.op (txid, decision) SELECT DISTINCT txid, 1 FROM h ORDER BY txid RETURNING txid)
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid"""
)

# A message for later is a half that nobody but the schedule is to decide: both rows at once, or it would be in doubt.
SCHEDULE = """
WITH x AS MATERIALIZED (
    SELECT CASE WHEN first THEN nextval('{s}.tx_seq') ELSE currval('{s}.tx_seq') END AS txid, r.*
      FROM {rows} AS r(first, pgroup, qid, chunk, n, evidence, immunity, body, delay, moment)),
 h AS (INSERT INTO {s}.half (txid, batch, pgroup, qid, chunk, n, body)
    SELECT txid, $1, pgroup, qid, chunk, n, body FROM x RETURNING txid, pgroup),
 w AS (INSERT INTO {s}.scheduled (txid, at, pgroup)
    SELECT txid, coalesce(to_timestamp(moment), clock_timestamp() + delay * interval '1 second'), pgroup
      FROM x WHERE first)
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid"""
TIMED_ROWS = Source(2, (*ROWS.types, "float8", "float8"))

NEWEST = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {s}.tx_seq"

# A batch whose answer was lost: its numbers, if it was stored.
BATCH = """
SELECT DISTINCT txid, {token} FROM {s}.half WHERE txid > $1 AND batch = $2 ORDER BY txid"""

DECIDE = """
INSERT INTO {s}.op (txid, decision, from_check)
SELECT x.txid, x.decision, x.from_check
  FROM {rows} AS x(txid, pgroup, token, decision, from_check)
 CROSS JOIN LATERAL (SELECT pgroup, keyed, born, immunity FROM {s}.half WHERE half.txid = x.txid LIMIT 1) h
 WHERE h.pgroup = x.pgroup AND NOT h.keyed AND x.token = {token}
   AND (h.immunity IS NULL OR x.from_check
        OR h.born + greatest(h.immunity, $6) * interval '1 second' > clock_timestamp())
    ON CONFLICT (txid) DO NOTHING
RETURNING txid"""
ENDS = Source(1, ("int8", "int4", "bytea", "int4", "bool"))

RECALL = (
    "WITH o AS ("
    + DECIDE
    + """),
 d AS (DELETE FROM {s}.scheduled WHERE txid = ANY (ARRAY(SELECT txid FROM o)))
SELECT txid FROM o"""
)

# Why an end got no row of its own: what stands, or what was wrong with it.
STANDING = """
SELECT x.txid, o.decision, h.pgroup, h.keyed, x.token = {token} AS genuine
  FROM {rows} AS x(txid, pgroup, token)
  LEFT JOIN LATERAL (SELECT pgroup, keyed FROM {s}.half WHERE half.txid = x.txid LIMIT 1) h ON true
  LEFT JOIN {s}.op o ON o.txid = x.txid"""
NAMES = Source(1, ("int8", "int4", "bytea"))

# What is new since the last tick; `hi` caps the batch at the number of a decision.
NEWS = """
SELECT pg_try_advisory_xact_lock(hashtextextended('{s}.tick', 0)),
       t.id, t.snap::text, t.last_txid, pg_current_snapshot()::text,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {s}.tx_seq),
       (SELECT c.xid::text FROM {s}.op c WHERE c.xid > (
            SELECT o.xid FROM {s}.op o WHERE o.xid >= pg_snapshot_xmax(t.snap)
             ORDER BY o.xid OFFSET %(limit)s LIMIT 1)
         ORDER BY c.xid LIMIT 1),
       EXISTS (SELECT FROM {s}.op o WHERE o.xid >= pg_snapshot_xmax(t.snap))
         OR EXISTS (SELECT FROM {s}.op o WHERE o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(t.snap)))),
       t.at < clock_timestamp() - interval '1 second'
  FROM (SELECT id, snap, last_txid, at FROM {s}.tick ORDER BY id DESC LIMIT 1) t"""

# Halves are looked up decision by decision: a plain join would, on a full table, read every half in each tick.
TICK = """
WITH o AS MATERIALIZED (
    SELECT txid, xid, keyed FROM {s}.op
     WHERE xid >= %(lo)s::text::xid8 AND xid < %(hi)s::text::xid8 AND decision = 1
    UNION ALL
    SELECT txid, xid, keyed FROM {s}.op WHERE xid = ANY (%(xip)s::text[]::xid8[]) AND decision = 1),
 b AS (
    SELECT h.qid, h.txid, h.part, h.attempt, h.chunk, h.n,
           sum(h.n) OVER (PARTITION BY h.qid ORDER BY o.xid, h.txid, h.part, h.chunk) - h.n AS rel,
           sum(h.n) OVER (PARTITION BY h.qid) AS total
      FROM o JOIN LATERAL (
            SELECT txid, qid, part, attempt, chunk, n FROM {s}.half WHERE half.txid = o.txid OFFSET 0) h ON true
     WHERE NOT o.keyed OR (SELECT true FROM {s}.part p
            WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt)),
 q AS (
    UPDATE {s}.queue SET head = head + t.total
      FROM (SELECT DISTINCT qid, total FROM b ORDER BY qid) t WHERE t.qid = queue.qid
    RETURNING queue.qid, queue.head - t.total AS base),
 i AS (
    INSERT INTO {s}.log (qid, base, n, txid, part, attempt, chunk)
    SELECT b.qid, q.base + b.rel, b.n, b.txid, b.part, b.attempt, b.chunk FROM b JOIN q USING (qid)
    RETURNING 1),
 k AS (
    INSERT INTO {s}.tick (id, snap, last_txid)
    VALUES (%(id)s, %(snap)s::text::pg_snapshot, %(last)s) ON CONFLICT DO NOTHING RETURNING id)
SELECT (SELECT count(*) FROM i), (SELECT count(*) FROM k),
       CASE WHEN EXISTS (SELECT FROM i) THEN pg_notify(%(channel)s, '') END"""

FETCH = """
SELECT l.base, l.n, l.txid, l.part, l.attempt, l.chunk, h.born, h.body
  FROM (SELECT * FROM {s}.log WHERE qid = %(qid)s AND base < %(end)s
           AND base >= coalesce((SELECT max(base) FROM {s}.log WHERE qid = %(qid)s AND base <= %(offset)s), 0)
         ORDER BY base LIMIT %(limit)s) l
  JOIN LATERAL (SELECT born, body FROM {s}.half h WHERE h.txid = l.txid AND h.part = l.part
                   AND h.attempt = l.attempt AND h.qid = l.qid AND h.chunk = l.chunk OFFSET 0) h ON true
 WHERE l.base + l.n > %(offset)s ORDER BY l.base"""

# Numbers without a decision, and then their halves: of what is settled no half is read.
# A half is due when its own immunity is over, never before. It is raised to the least one as its end raises it.
SWEEP = """
INSERT INTO {s}.doubt (txid, pgroup, check_at)
SELECT x.txid, h.pgroup,
       h.born + interval '1 second' * greatest(coalesce((p.checks ->> 'min_age')::float8, %(age)s),
                CASE WHEN h.immunity IS NOT NULL THEN greatest(h.immunity, %(least)s) END)
  FROM (SELECT n AS txid FROM generate_series(%(lo)s::int8 + 1, %(hi)s::int8) n
         WHERE NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = n AND o.txid > %(lo)s AND o.txid <= %(hi)s)
        OFFSET 0) x
  JOIN LATERAL (SELECT pgroup, born, immunity FROM {s}.half h
                 WHERE h.txid = x.txid AND h.txid > %(lo)s AND h.txid <= %(hi)s AND NOT h.keyed LIMIT 1) h ON true
  LEFT JOIN {s}.producer_group p ON p.id = h.pgroup
 WHERE NOT EXISTS (SELECT FROM {s}.scheduled w WHERE w.txid = x.txid AND w.txid > %(lo)s AND w.txid <= %(hi)s)
    ON CONFLICT (txid) DO NOTHING"""

# Decisions and questions are looked up one by one: an anti join would read all there are, each time. The time is asked
# for once: an index can't be searched for what changes from row to row.
DOUBTS = """
SELECT d.txid, d.pgroup, {token}, d.keyed, coalesce(t.evidence, h.evidence), coalesce(t.opened, h.born), d.checks,
       clock_timestamp() - coalesce(t.opened, h.born), t.run
  FROM (SELECT * FROM {s}.doubt w WHERE parked IS NULL AND check_at <= (SELECT clock_timestamp())
           AND (SELECT o.txid FROM {s}.op o WHERE o.txid = w.txid) IS NULL
           AND (SELECT q.txid FROM {s}.question q WHERE q.txid = w.txid) IS NULL
         ORDER BY check_at, txid LIMIT %(limit)s) d
  LEFT JOIN LATERAL (SELECT evidence, opened, run FROM {s}.tx WHERE tx.txid = d.txid OFFSET 0) t ON true
  LEFT JOIN LATERAL (SELECT evidence, born FROM {s}.half h WHERE h.txid = d.txid LIMIT 1) h ON true
 ORDER BY d.check_at, d.txid"""

# One transaction, whether it is on the list or not: what settling it by hand needs.
DOUBT = """
SELECT x.txid, x.pgroup, {token}, x.keyed, x.evidence, x.born, coalesce(d.checks, 0), clock_timestamp() - x.born,
       x.run
  FROM (SELECT txid, pgroup, true AS keyed, evidence, opened AS born, run FROM {s}.tx WHERE txid = %(txid)s
        UNION ALL
        (SELECT txid, pgroup, false, evidence, born, NULL FROM {s}.half WHERE txid = %(txid)s AND NOT keyed LIMIT 1)) x
  LEFT JOIN {s}.doubt d ON d.txid = x.txid"""


@dataclass(frozen=True)
class Hot:
    """The hot statements of one namespace."""

    prepare: Form
    publish: Form
    schedule: Form
    batch: str
    newest: str
    decide: Form
    recall: Form
    standing: Form
    news: str
    tick: str
    fetch: str
    sweep: str
    doubts: str
    doubt: str

    @classmethod
    def of(cls, schema: str) -> "Hot":
        """Write the statements for a (quoted) namespace."""

        def write(sql: str, group: str = "pgroup", txid: str = "txid", rows: str = "", token: str = TOKEN) -> str:
            written = token.format(s=schema, group=group, txid=txid)
            return sql.format(s=schema, token=written, rows=rows).strip()

        def form(sql: str, source: Source, group: str = "pgroup", txid: str = "txid") -> Form:
            one = write(sql, group, txid, source.one, TOKEN_OF_ONE)
            return Form(one, write(sql, group, txid, source.many))

        return cls(
            prepare=form(PREPARE, ROWS),
            publish=form(PUBLISH, ROWS, "h.pgroup", "h.txid"),
            schedule=form(SCHEDULE, TIMED_ROWS, "h.pgroup", "h.txid"),
            batch=write(BATCH),
            newest=write(NEWEST),
            decide=form(DECIDE, ENDS, "x.pgroup", "x.txid"),
            recall=form(RECALL, ENDS, "x.pgroup", "x.txid"),
            standing=form(STANDING, NAMES, "x.pgroup", "x.txid"),
            news=write(NEWS),
            tick=write(TICK),
            fetch=write(FETCH),
            sweep=write(SWEEP),
            doubts=write(DOUBTS, "d.pgroup", "d.txid"),
            doubt=write(DOUBT, "x.pgroup", "x.txid"),
        )
