-- name: take_new
-- Locked rows belong to other members: skip to the next queue. The cursor is read again under its lock. A group that is
-- made anew may read in another way: a member that does not know it yet finds nothing.
WITH pick AS (
    SELECT c.qid, c.off, least(q.head - c.off, $4)::int AS size FROM txsaga.cursor c JOIN txsaga.queue q USING (qid)
     WHERE c.grp = $1 AND c.qid = ANY ($2) AND c.off < q.head
       AND NOT EXISTS (SELECT FROM txsaga.consumer_group g WHERE g.name = $1 AND (g.style <> 'work' OR g.ordered))
     ORDER BY c.qid <= $3, c.qid LIMIT 1 FOR UPDATE OF c SKIP LOCKED),
 moved AS (
    UPDATE txsaga.cursor c SET off = c.off + p.size FROM pick p WHERE c.grp = $1 AND c.qid = p.qid)
INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, receipt, member)
SELECT $1, qid, off, size, (1::bigint << size) - 1, 1, clock_timestamp() + $5 * interval '1 second', $6, $7 FROM pick
RETURNING qid, base, size, open, attempts, receipt, message, extract(epoch FROM born)::float8, body,
          set_config('synchronous_commit', 'off', true);

-- name: take_due
-- The plan must start from the index by time: it can't use a clock that moves within a statement, and `+ 0` keeps the
-- key from leading. The first message of each key is found in one scan of the line: a subquery per waiting message
-- takes long. An expired run is split: its messages are redelivered one by one, each taken out by the next member that
-- asks.
WITH due AS MATERIALIZED (
    SELECT qid, base, size, open, attempts, until, history FROM txsaga.claim c
     WHERE grp = $1 AND until <= statement_timestamp() AND qid + 0 = ANY ($2)
       AND (key IS NULL OR (qid, base) IN (
            SELECT DISTINCT ON (e.qid, e.key) e.qid, e.base FROM txsaga.claim e
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
    UPDATE txsaga.claim c SET open = run.open & ~(1::bigint << run.at) FROM run
     WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (run.qid, run.base, run.size)),
 alone AS (
    INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
    SELECT $1, qid, base + at, 1, 1, attempts + 1, clock_timestamp() + $4 * interval '1 second', $5, $6, history
      FROM run RETURNING qid, base, size, open, attempts, receipt, message, extract(epoch FROM born)::float8, body),
 taken AS (
    UPDATE txsaga.claim c SET until = clock_timestamp() + $4 * interval '1 second', receipt = $5, member = $6,
           attempts = c.attempts + 1
      FROM chosen x WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (x.qid, x.base, x.size)
    RETURNING c.qid, c.base, c.size, c.open, c.attempts, c.receipt, message, extract(epoch FROM born)::float8, body)
SELECT *, set_config('synchronous_commit', 'off', true) FROM (SELECT * FROM alone UNION ALL SELECT * FROM taken) t;

-- name: ack
-- Lock rows before reading them: of two calls that end the last messages of a run, one would find it changed.
WITH x AS MATERIALIZED (SELECT * FROM {rows} AS x(grp, qid, base, size, receipt, open)),
 held AS MATERIALIZED (
    SELECT c.grp, c.qid, c.base, c.size, c.receipt, c.open & x.open AS acked, c.open & ~x.open AS rest
      FROM x JOIN txsaga.claim c USING (grp, qid, base, size, receipt)
     WHERE c.until > clock_timestamp() AND c.txid IS NULL AND c.open & x.open <> 0 FOR UPDATE OF c),
 done AS (
    DELETE FROM txsaga.claim c USING held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest = 0),
 less AS (
    UPDATE txsaga.claim c SET open = h.rest FROM held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest <> 0)
SELECT qid, base, size, receipt, acked FROM held;

-- name: unread
SELECT c.qid, c.off, least(q.head, c.off + :limit) AS upto FROM txsaga.cursor c JOIN txsaga.queue q USING (qid)
 WHERE c.grp = :grp AND c.qid = ANY (:qids) AND c.off < q.head
   AND NOT EXISTS (SELECT FROM txsaga.consumer_group g WHERE g.name = :grp AND (g.style <> 'work' OR NOT g.ordered))
   AND (SELECT count(*) FROM (SELECT FROM txsaga.claim w
       WHERE w.grp = c.grp AND w.qid = c.qid LIMIT :window) n) < :window
 ORDER BY c.qid <= :after, c.qid LIMIT 1;

-- name: line_up
WITH moved AS (
    UPDATE txsaga.cursor SET off = :end WHERE grp = :grp AND qid = :qid AND off = :start RETURNING qid)
INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, key)
SELECT :grp, :qid, :start + x.at - 1, 1, 1, 0, clock_timestamp(), x.key
  FROM moved, unnest(CAST(:keys AS bigint[])) WITH ORDINALITY AS x(key, at);

-- name: drop
DELETE FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt;
