-- name: prepare
INSERT INTO txsaga.half (txid, batch, pgroup, qid, chunk, n, evidence, immunity, body)
SELECT CASE WHEN x.first THEN nextval('txsaga.tx_seq') ELSE currval('txsaga.tx_seq') END,
       $1, x.pgroup, x.qid, x.chunk, x.n, x.evidence, x.immunity, x.body
  FROM {rows} AS x(first, pgroup, qid, chunk, n, evidence, immunity, body)
 CROSS JOIN txsaga.store WHERE NOT store.rejecting
RETURNING txid, {token};

-- name: publish
WITH h AS (
INSERT INTO txsaga.half (txid, batch, pgroup, qid, chunk, n, evidence, immunity, body)
SELECT CASE WHEN x.first THEN nextval('txsaga.tx_seq') ELSE currval('txsaga.tx_seq') END,
       $1, x.pgroup, x.qid, x.chunk, x.n, x.evidence, x.immunity, x.body
  FROM {rows} AS x(first, pgroup, qid, chunk, n, evidence, immunity, body)
RETURNING txid, pgroup),
 decided AS (SELECT DISTINCT txid, 1 AS decision, false AS keyed, false AS from_check FROM h),
 o AS ({statement store/decision.write})
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid;

-- name: schedule
-- A delayed message is a half that only the schedule decides: without both rows at once it would get checked.
WITH x AS MATERIALIZED (
    SELECT CASE WHEN first THEN nextval('txsaga.tx_seq') ELSE currval('txsaga.tx_seq') END AS txid, r.*
      FROM {rows} AS r(first, pgroup, qid, chunk, n, evidence, immunity, body, delay, moment)),
 h AS (INSERT INTO txsaga.half (txid, batch, pgroup, qid, chunk, n, body)
    SELECT txid, $1, pgroup, qid, chunk, n, body FROM x RETURNING txid, pgroup),
 w AS (INSERT INTO txsaga.scheduled (txid, at, pgroup)
    SELECT txid, coalesce(to_timestamp(moment), clock_timestamp() + delay * interval '1 second'), pgroup
      FROM x WHERE first)
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid;

-- name: newest
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM txsaga.tx_seq;

-- name: batch
-- The numbers of a batch whose answer was lost, if it was stored.
SELECT DISTINCT txid, {token} FROM txsaga.half WHERE txid > $1 AND batch = $2 ORDER BY txid;

-- name: decide
WITH decided AS (
SELECT x.txid, x.decision, h.keyed, x.from_check
  FROM {rows} AS x(txid, pgroup, token, decision, from_check)
 CROSS JOIN LATERAL (SELECT pgroup, keyed, born, immunity FROM txsaga.half WHERE half.txid = x.txid LIMIT 1) h
 WHERE h.pgroup = x.pgroup AND NOT h.keyed AND (x.token = {token} OR (x.token = '' AND {others}))
   AND (h.immunity IS NULL OR x.from_check
        OR h.born + greatest(h.immunity, $6) * interval '1 second' > clock_timestamp()))
{statement store/decision.write}
    ON CONFLICT (txid) DO NOTHING
RETURNING txid;

-- name: recall
WITH o AS (
{statement decide}),
 d AS (DELETE FROM txsaga.scheduled WHERE txid = ANY (ARRAY(SELECT txid FROM o)))
SELECT txid FROM o;

-- name: standing
-- Why an end got no row: the final decision, or what was wrong with it.
SELECT x.txid, o.decision, h.pgroup, h.keyed, x.token = {token} AS genuine
  FROM {rows} AS x(txid, pgroup, token)
  LEFT JOIN LATERAL (SELECT pgroup, keyed FROM txsaga.half WHERE half.txid = x.txid LIMIT 1) h ON true
  LEFT JOIN txsaga.op o ON o.txid = x.txid;

-- name: tick
-- The function is in consume/sql/tick.sql.
SELECT * FROM txsaga.tick(%(limit)s);

-- name: fetch
SELECT l.base, l.n, l.txid, l.part, l.attempt, l.chunk, h.born, h.body
  FROM (SELECT * FROM txsaga.log WHERE qid = $1 AND base < least($4, (SELECT head FROM txsaga.queue WHERE qid = $1))
           AND base >= coalesce((SELECT max(base) FROM txsaga.log WHERE qid = $1 AND base <= $2), 0)
         ORDER BY base LIMIT $3) l
  JOIN LATERAL (SELECT born, body FROM txsaga.half h WHERE h.txid = l.txid AND h.part = l.part
                   AND h.attempt = l.attempt AND h.qid = l.qid AND h.chunk = l.chunk OFFSET 0) h ON true
 WHERE l.base + l.n > $2 ORDER BY l.base;

-- name: sweep
-- Numbers without a decision, then their halves: no half of a decided transaction is read.
-- A half is due when its own immunity is over, never before. Like its end, this raises an immunity to the minimum.
INSERT INTO txsaga.doubt (txid, pgroup, check_at)
SELECT x.txid, h.pgroup,
       h.born + interval '1 second' * greatest(coalesce((p.checks ->> 'min_age')::float8, %(age)s),
                CASE WHEN h.immunity IS NOT NULL THEN greatest(h.immunity, %(least)s) END)
  FROM (SELECT n AS txid FROM generate_series(%(lo)s::int8 + 1, %(hi)s::int8) n
         WHERE NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = n AND o.txid > %(lo)s AND o.txid <= %(hi)s)
        OFFSET 0) x
  JOIN LATERAL (SELECT pgroup, born, immunity FROM txsaga.half h
                 WHERE h.txid = x.txid AND h.txid > %(lo)s AND h.txid <= %(hi)s AND NOT h.keyed LIMIT 1) h ON true
  LEFT JOIN txsaga.producer_group p ON p.id = h.pgroup
 WHERE NOT EXISTS (SELECT FROM txsaga.scheduled w WHERE w.txid = x.txid AND w.txid > %(lo)s AND w.txid <= %(hi)s)
    ON CONFLICT (txid) DO NOTHING;

-- name: ghosts
-- Listed transactions that no longer exist can't be checked; each is looked up by its number.
DELETE FROM txsaga.doubt d WHERE d.check_at <= (SELECT clock_timestamp())
   AND (SELECT t.txid FROM txsaga.tx t WHERE t.txid = d.txid) IS NULL
   AND (SELECT h.txid FROM txsaga.half h WHERE h.txid = d.txid LIMIT 1) IS NULL;

-- name: doubts
-- Decisions and questions are looked up one by one: an anti join would read all of them each time. The clock is read
-- once: an index can't be searched for a value that changes from row to row. Columns are in the order of `Doubt`. A
-- transaction of a run may be open as long as the run lives, so its age counts from its last step.
SELECT d.txid, d.pgroup, {token}, d.keyed, coalesce(t.evidence, h.evidence), coalesce(t.opened, h.born), d.checks,
       clock_timestamp() - coalesce(greatest(d.resumed, t.since), h.born), t.run, d.remarks -> -1 ->> 'who'
  FROM (SELECT * FROM txsaga.doubt w WHERE parked IS NULL AND check_at <= (SELECT clock_timestamp())
           AND (SELECT o.txid FROM txsaga.op o WHERE o.txid = w.txid) IS NULL
           AND (SELECT q.txid FROM txsaga.question q WHERE q.txid = w.txid) IS NULL
         ORDER BY check_at, txid LIMIT $1) d
  LEFT JOIN LATERAL (SELECT evidence, opened, run, CASE WHEN run IS NULL THEN opened ELSE touched END AS since
                       FROM txsaga.tx WHERE d.keyed AND tx.txid = d.txid OFFSET 0) t ON true
  LEFT JOIN LATERAL (SELECT evidence, born FROM txsaga.half h WHERE h.txid = d.txid LIMIT 1) h ON true
 WHERE coalesce(t.opened, h.born) IS NOT NULL
 ORDER BY d.check_at, d.txid;

-- name: doubt
-- One transaction, on the list or not, for settling it by hand.
SELECT x.txid, x.pgroup, {token}, x.keyed, x.evidence, x.born, coalesce(d.checks, 0), clock_timestamp() - x.born,
       x.run
  FROM (SELECT txid, pgroup, true AS keyed, evidence, opened AS born, run FROM txsaga.tx WHERE txid = %(txid)s
        UNION ALL
        (SELECT txid, pgroup, false, evidence, born, NULL FROM txsaga.half
            WHERE txid = %(txid)s AND NOT keyed LIMIT 1)) x
  LEFT JOIN txsaga.doubt d ON d.txid = x.txid;

-- name: views
-- For people: never the body, which may be megabytes. Decision and winner are looked up one by one: a join may read
-- every decision.
SELECT h.txid, h.part, h.attempt, h.qid, h.chunk, h.n, h.born, h.keyed, q.idx, t.name,
       coalesce(g.name, '') AS group_name,
       (SELECT o.decision FROM txsaga.op o WHERE o.txid = h.txid) AS decision,
       (SELECT p.attempt FROM txsaga.part p WHERE p.txid = h.txid AND p.part = h.part) AS winner
  FROM txsaga.half h JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
  LEFT JOIN txsaga.producer_group g ON g.id = h.pgroup
 WHERE h.txid = ANY (%(txids)s::int8[])
 ORDER BY h.txid, h.part, h.attempt, h.qid, h.chunk;

-- name: contents
-- What a transaction would deliver: its halves; for a keyed one, those of the attempts that count.
SELECT t.name, h.body FROM txsaga.half h JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
 WHERE h.txid = %(txid)s AND (NOT h.keyed OR EXISTS (
       SELECT FROM txsaga.part p WHERE (p.txid, p.part, p.attempt) = (h.txid, h.part, h.attempt)))
 ORDER BY h.part, h.attempt, h.qid, h.chunk;

-- name: call_contents
SELECT * FROM txsaga.contents(%(txid)s::int8);
