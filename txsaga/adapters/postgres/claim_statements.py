"""
The statements of the work style: take, acknowledge, put back, bury.

What is taken often goes straight to the server and needs no fsync: a claim that a crash of the server loses is a
message that comes again. Plans are generic; those that touch `claim` are held by tests.
"""

from dataclasses import dataclass

from txsaga.adapters.postgres.hot import Form, Source

LAZY = "set_config('synchronous_commit', 'off', true)"
"""The caller waits for no disk: for statements whose loss is a redelivery."""

COPY = "message, extract(epoch FROM born)::float8, body"

# Locked rows are other members': whoever comes takes the next queue. The cursor is read again under its lock.
TAKE_NEW = """
WITH pick AS (
    SELECT c.qid, c.off, least(q.head - c.off, $4)::int AS size FROM {s}.cursor c JOIN {s}.queue q USING (qid)
     WHERE c.grp = $1 AND c.qid = ANY ($2) AND c.off < q.head
     ORDER BY c.qid <= $3, c.qid LIMIT 1 FOR UPDATE OF c SKIP LOCKED),
 moved AS (
    UPDATE {s}.cursor c SET off = c.off + p.size FROM pick p WHERE c.grp = $1 AND c.qid = p.qid)
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member)
SELECT $1, qid, off, size, (1::bigint << size) - 1, 1, clock_timestamp() + $5 * interval '1 second', $6, $7 FROM pick
RETURNING qid, base, size, open, attempts, receipt, {copy}, {lazy}"""

# The index by time leads: it can't use a clock that moves within a statement, and `+ 0` keeps the key from leading.
# Who leads each key is found in one look at the line: asked of each message behind a key that rests, it takes long.
# A run that ran out comes apart: what was in it comes alone, each taken out of it by whoever comes first.
TAKE_DUE = """
WITH due AS MATERIALIZED (
    SELECT qid, base, size, open, attempts, until, history FROM {s}.claim c
     WHERE grp = $1 AND until <= statement_timestamp() AND qid + 0 = ANY ($2)
       AND (key IS NULL OR (qid, base) IN (
            SELECT DISTINCT ON (e.qid, e.key) e.qid, e.base FROM {s}.claim e
             WHERE e.grp = $1 AND e.qid = ANY ($2) AND e.key IS NOT NULL ORDER BY e.qid, e.key, e.base))
     ORDER BY until, qid, base LIMIT $3 FOR UPDATE SKIP LOCKED),
 first AS (SELECT * FROM due ORDER BY until, qid, base LIMIT 1),
 run AS (
    SELECT *, (SELECT min(i) FROM generate_series(0, size - 1) i WHERE open >> i & 1 = 1) AS at FROM first
     WHERE open & (open - 1) <> 0),
 chosen AS (
    SELECT due.qid, due.base, due.size FROM due, first f
     WHERE CASE WHEN f.attempts > 0 THEN (due.qid, due.base, due.size) = (f.qid, f.base, f.size)
                ELSE due.attempts = 0 END
       AND NOT EXISTS (SELECT FROM run)),
 less AS (
    UPDATE {s}.claim c SET open = run.open & ~(1::bigint << run.at) FROM run
     WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (run.qid, run.base, run.size)),
 alone AS (
    INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
    SELECT $1, qid, base + at, 1, 1, attempts + 1, clock_timestamp() + $4 * interval '1 second', $5, $6, history
      FROM run RETURNING qid, base, size, open, attempts, receipt, {copy}),
 taken AS (
    UPDATE {s}.claim c SET until = clock_timestamp() + $4 * interval '1 second', receipt = $5, member = $6,
           attempts = c.attempts + 1
      FROM chosen x WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (x.qid, x.base, x.size)
    RETURNING c.qid, c.base, c.size, c.open, c.attempts, c.receipt, {copy})
SELECT *, {lazy} FROM (SELECT * FROM alone UNION ALL SELECT * FROM taken) t"""

# Rows are locked before they are looked at: of two that end the last messages of a run, one would find it changed.
ACK = """
WITH x AS MATERIALIZED (SELECT * FROM {rows} AS x(grp, qid, base, size, receipt, open)),
 held AS MATERIALIZED (
    SELECT c.grp, c.qid, c.base, c.size, c.receipt, c.open & x.open AS acked, c.open & ~x.open AS rest
      FROM x JOIN {s}.claim c USING (grp, qid, base, size, receipt)
     WHERE c.until > clock_timestamp() AND c.txid IS NULL AND c.open & x.open <> 0 FOR UPDATE OF c),
 done AS (
    DELETE FROM {s}.claim c USING held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest = 0),
 less AS (
    UPDATE {s}.claim c SET open = h.rest FROM held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest <> 0)
SELECT qid, base, size, receipt, acked FROM held"""
ACKS = Source(1, ("text", "int4", "int8", "int4", "int8", "int8"))

UNREAD = """
SELECT c.qid, c.off, least(q.head, c.off + :limit) AS upto FROM {s}.cursor c JOIN {s}.queue q USING (qid)
 WHERE c.grp = :grp AND c.qid = ANY (:qids) AND c.off < q.head
   AND (SELECT count(*) FROM (SELECT FROM {s}.claim w WHERE w.grp = c.grp AND w.qid = c.qid LIMIT :window) n) < :window
 ORDER BY c.qid <= :after, c.qid LIMIT 1"""

LINE_UP = """
WITH moved AS (
    UPDATE {s}.cursor SET off = :end WHERE grp = :grp AND qid = :qid AND off = :start RETURNING qid)
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, key)
SELECT :grp, :qid, :start + x.at - 1, 1, 1, 0, clock_timestamp(), x.key
  FROM moved, unnest(CAST(:keys AS bigint[])) WITH ORDINALITY AS x(key, at)"""


@dataclass(frozen=True)
class ClaimStatements:
    """The statements of one namespace."""

    take_new: str
    take_due: str
    ack: Form
    unread: str
    line_up: str

    @classmethod
    def of(cls, schema: str) -> "ClaimStatements":
        """Write the statements for a (quoted) namespace."""

        def write(sql: str, rows: str = "") -> str:
            return sql.format(s=schema, lazy=LAZY, copy=COPY, rows=rows).strip()

        return cls(
            take_new=write(TAKE_NEW),
            take_due=write(TAKE_DUE),
            ack=Form(write(ACK, ACKS.one), write(ACK, ACKS.many)),
            unread=write(UNREAD),
            line_up=write(LINE_UP),
        )
