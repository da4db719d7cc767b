-- name: news
-- What is new since the last tick; `cap` is the number of the first decision over the limit.
SELECT t.id, t.snap, t.last_txid, t.at < clock_timestamp() - interval '1 second' AS stale,
       pg_current_snapshot() AS seen,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM txsaga.tx_seq) AS newest,
       (SELECT c.xid FROM txsaga.op c WHERE c.xid > (
            SELECT o.xid FROM txsaga.op o WHERE o.xid >= pg_snapshot_xmax(t.snap)
             ORDER BY o.xid OFFSET %(limit)s LIMIT 1)
         ORDER BY c.xid LIMIT 1) AS cap,
       EXISTS (SELECT FROM txsaga.op o WHERE o.xid >= pg_snapshot_xmax(t.snap))
         OR EXISTS (SELECT FROM txsaga.op o WHERE o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(t.snap)))) AS news,
       ARRAY(SELECT qid FROM txsaga.queue WHERE reached IS NOT NULL ORDER BY qid) AS blocked
  FROM (SELECT id, snap, last_txid, at FROM txsaga.tick ORDER BY id DESC LIMIT 1) t;

-- name: blocked
-- A row at or after the head is stray, unless it is of a message that a tick saw committed, of the attempt that won,
-- and without an offset before the head: then the head was set back. A stray row comes first.
SELECT t.name || '/' || q.idx, q.qid, q.head, l.base, l.txid, l.stray,
       (SELECT max(base + n) FROM txsaga.log e WHERE e.qid = q.qid AND e.base >= q.head)
  FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
 CROSS JOIN LATERAL (
    SELECT r.base, r.txid, EXISTS (
               SELECT FROM txsaga.log e WHERE e.qid = q.qid AND e.base < q.head AND e.base >= q.head - 200000
                  AND (e.txid, e.part, e.attempt, e.chunk) = (r.txid, r.part, r.attempt, r.chunk))
           OR NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = r.txid AND o.decision = 1 AND pg_visible_in_snapshot(
                  o.xid, coalesce(q.reached, (SELECT snap FROM txsaga.tick ORDER BY id DESC LIMIT 1)))
                  AND (NOT o.keyed OR EXISTS (SELECT FROM txsaga.part p
                       WHERE (p.txid, p.part, p.attempt) = (r.txid, r.part, r.attempt))))
           OR NOT EXISTS (SELECT FROM txsaga.half h WHERE h.qid = q.qid
                  AND (h.txid, h.part, h.attempt, h.chunk, h.n) = (r.txid, r.part, r.attempt, r.chunk, r.n)) AS stray
      FROM (SELECT * FROM txsaga.log WHERE log.qid = q.qid AND log.base >= q.head ORDER BY base LIMIT 100) r
     ORDER BY stray DESC, base LIMIT 1) l
 ORDER BY q.qid;

-- name: give
-- Half messages are looked up per decision: a plain join on a full table would read every half message in each tick.
WITH o AS MATERIALIZED (
    SELECT txid, xid, keyed FROM txsaga.op
     WHERE xid >= %(lo)s AND xid < %(hi)s AND decision = 1
    UNION ALL
    SELECT txid, xid, keyed FROM txsaga.op WHERE xid = ANY (%(xip)s) AND decision = 1),
 b AS (
    SELECT h.qid, h.txid, h.part, h.attempt, h.chunk, h.n,
           sum(h.n) OVER (PARTITION BY h.qid ORDER BY o.xid, h.txid, h.part, h.attempt, h.chunk) - h.n AS rel,
           sum(h.n) OVER (PARTITION BY h.qid) AS total
      FROM o JOIN LATERAL (
            SELECT txid, qid, part, attempt, chunk, n FROM txsaga.half WHERE half.txid = o.txid OFFSET 0) h ON true
     WHERE CASE WHEN %(qids)s IS NULL THEN h.qid <> ALL (%(blocked)s) ELSE h.qid = ANY (%(qids)s) END
       AND (NOT o.keyed OR (SELECT true FROM txsaga.part p
            WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt))),
 q AS (
    UPDATE txsaga.queue SET head = head + t.total
      FROM (SELECT DISTINCT qid, total FROM b ORDER BY qid) t WHERE t.qid = queue.qid
       AND (SELECT l.base FROM txsaga.log l WHERE l.qid = queue.qid AND l.base >= queue.head LIMIT 1) IS NULL
    RETURNING queue.qid, queue.head - t.total AS base),
 i AS (
    INSERT INTO txsaga.log (qid, base, n, txid, part, attempt, chunk)
    SELECT b.qid, q.base + b.rel, b.n, b.txid, b.part, b.attempt, b.chunk FROM b JOIN q USING (qid)
    RETURNING 1),
 w AS (
    UPDATE txsaga.queue SET reached = %(snap)s
     WHERE qid IN (SELECT qid FROM b EXCEPT SELECT qid FROM q) RETURNING qid)
SELECT (SELECT count(*) FROM i), ARRAY(SELECT qid FROM w);

-- name: tick
-- The body of the function; its braces take the statements above.
DECLARE
    prior record;
    span record;
    upto pg_snapshot;
    freed int4[];
    waiting int4[];
    gave int8;
    given int8 := 0;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RAISE feature_not_supported USING MESSAGE = 'a tick is one snapshot: begin the transaction REPEATABLE READ';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN  -- its own commit, whose place may be past the snapshot
        RAISE active_sql_transaction USING MESSAGE = 'a tick comes first: nothing may be written before it';
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('txsaga.tick', 0)) THEN RETURN; END IF;
    {news};
    IF prior.blocked <> '{{}}' THEN
        freed := ARRAY(SELECT qid FROM txsaga.queue WHERE qid = ANY (prior.blocked)
            AND (SELECT l.base FROM txsaga.log l WHERE l.qid = queue.qid AND l.base >= queue.head LIMIT 1) IS NULL);
    END IF;
    tick := prior.id;
    chunks := 0;
    more := false;
    blocked := prior.blocked;
    IF NOT prior.news AND coalesce(freed, '{{}}') = '{{}}' AND (prior.newest = prior.last_txid OR NOT prior.stale) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    upto := prior.seen;
    IF prior.cap IS NOT NULL THEN
        upto := format('%s:%s:%s', least(pg_snapshot_xmin(upto), prior.cap), prior.cap, (
            SELECT string_agg(x::text, ',' ORDER BY x) FROM pg_snapshot_xip(upto) x WHERE x < prior.cap));
    END IF;
    INSERT INTO txsaga.tick (id, snap, last_txid) VALUES (prior.id + 1, upto, prior.newest)
        ON CONFLICT DO NOTHING;  -- of a rival's: it can't be serialized
    FOR span IN SELECT prior.snap AS since, NULL::int4[] AS qids UNION ALL
                (SELECT reached::text::pg_snapshot, array_agg(qid) FROM txsaga.queue WHERE qid = ANY (freed)
                  GROUP BY reached::text) LOOP
        {give};
        given := given + gave;
        blocked := blocked || waiting;
    END LOOP;
    IF freed <> '{{}}' THEN
        UPDATE txsaga.queue SET reached = NULL WHERE qid = ANY (freed);
    END IF;
    blocked := ARRAY(SELECT unnest(blocked) EXCEPT SELECT unnest(freed) ORDER BY 1);
    IF given > 0 THEN PERFORM pg_notify('{channel}', ''); END IF;
    tick := prior.id + 1;
    chunks := given;
    more := prior.cap IS NOT NULL;
    RETURN NEXT;
END;

-- name: bounds
SELECT qid, tail, head FROM txsaga.queue WHERE qid = ANY (%(qids)s);

-- name: chunk_before
SELECT base, n, at FROM txsaga.log WHERE qid = %(qid)s AND base <= %(middle)s ORDER BY base DESC LIMIT 1;
