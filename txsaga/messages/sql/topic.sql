-- name: one_by_one
SELECT pg_advisory_xact_lock(hashtext('txsaga topic'));

-- name: needed
-- What a topic is needed for. Undecided transactions are on the list of doubts, scheduled, open, or so new that the
-- sweep has not seen their halves; each of the former is looked up: a join would read every half. What has no offset
-- yet counts as stored.
WITH q AS MATERIALIZED (
    SELECT array_agg(qid) AS ids, sum(head - tail + (reached IS NOT NULL)::int4)::int8 AS stored
      FROM txsaga.queue WHERE topic = :id),
 u AS MATERIALIZED (
    SELECT txid FROM txsaga.doubt UNION SELECT txid FROM txsaga.scheduled
     UNION SELECT txid FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared', 'parked')),
 h AS (
    SELECT u.txid FROM u CROSS JOIN LATERAL (
        SELECT FROM txsaga.half h WHERE h.txid = u.txid AND h.qid = ANY ((SELECT ids FROM q)::int4[]) LIMIT 1) h
     UNION ALL
    SELECT u.txid FROM u JOIN txsaga.effect e ON e.txid = u.txid AND e.kind = 'late'
     WHERE CAST(e.payload ->> 'qid' AS int4) = ANY ((SELECT ids FROM q)::int4[])
     UNION ALL
    SELECT h.txid FROM txsaga.half h WHERE h.qid = ANY ((SELECT ids FROM q)::int4[])
       AND h.txid > (SELECT CASE WHEN count(*) = 2 THEN min(txid) ELSE 0 END
                       FROM txsaga.checkpoint WHERE name IN ('sweep', 'second look'))),
 n AS (
    SELECT sum(h.n)::int8 AS stored FROM (SELECT snap FROM txsaga.tick ORDER BY id DESC LIMIT 1) t
      JOIN txsaga.op o ON o.decision = 1 AND (o.xid >= pg_snapshot_xmax(t.snap)
           OR o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(t.snap))))
     CROSS JOIN LATERAL (
        SELECT n FROM txsaga.half WHERE half.txid = o.txid AND half.qid = ANY ((SELECT ids FROM q)::int4[])) h)
SELECT (SELECT string_agg(DISTINCT 'group ' || grp, ', ') FROM txsaga.cursor WHERE qid = ANY (q.ids)) AS readers,
       (SELECT string_agg('group ' || name, ', ' ORDER BY name) FROM txsaga.consumer_group
         WHERE backout = :name) AS backed_out_by,
       (SELECT min(txid) FROM h WHERE NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = h.txid)) AS undecided,
       q.stored + coalesce((SELECT stored FROM n), 0) AS stored
  FROM q;

-- name: delete
SELECT txsaga.delete_topic(:id);
