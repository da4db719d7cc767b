-- name: commit_due
-- The clock is read once: read per row, the index scan would have no upper bound. Decisions are inserted before rows
-- are deleted, and in the order of their numbers, as in a recall: two that meet may wait, but never deadlock.
WITH due AS MATERIALIZED (
    SELECT w.txid, w.at, h.qid
      FROM (SELECT txid, at FROM txsaga.scheduled
             WHERE at <= (SELECT clock_timestamp())
               AND (SELECT pg_try_advisory_xact_lock(hashtextextended('txsaga.schedule', 0)))
             ORDER BY at, txid LIMIT $1) w
      JOIN LATERAL (SELECT qid FROM txsaga.half WHERE half.txid = w.txid LIMIT 1) h ON true),
 f AS (
    SELECT txid, qid, at, txid < max(txid) OVER (
               PARTITION BY qid ORDER BY at, txid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS falls
      FROM due),
 mine AS MATERIALIZED (
    SELECT txid FROM (SELECT txid, bool_or(falls) OVER (PARTITION BY qid ORDER BY at, txid) AS fell FROM f) g
     WHERE fell IS NOT TRUE),
 decided AS (SELECT txid, 1 AS decision, false AS keyed, false AS from_check FROM mine),
 o AS (
    {statement store/decision.write} ON CONFLICT (txid) DO NOTHING RETURNING 1),
 d AS (
    DELETE FROM txsaga.scheduled WHERE txid = ANY (ARRAY(SELECT txid FROM mine)) AND (SELECT count(*) FROM o) >= 0
    RETURNING 1)
SELECT count(*) FROM d;
