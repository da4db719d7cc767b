-- name: some_spared
-- Is anything spared between :low and :bound? If not, no half and no decision is read.
SELECT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid >= :low AND d.txid < :bound AND d.parked IS NOT NULL)
    OR EXISTS (SELECT FROM txsaga.scheduled w
                WHERE w.txid >= :low AND w.txid < :bound AND w.at > clock_timestamp() + interval '1 hour');

-- name: left
-- Is anything spared in this partition that is not to be copied? It may be all there is, or too much.
WITH k AS MATERIALIZED (
    SELECT txid FROM (
        SELECT d.txid FROM txsaga.doubt d WHERE d.txid >= :low AND d.txid < :bound AND d.parked IS NOT NULL
        UNION ALL
        SELECT w.txid FROM txsaga.scheduled w
         WHERE w.txid >= :low AND w.txid < :bound AND w.at > clock_timestamp() + interval '1 hour') x
     WHERE NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = x.txid AND o.txid >= :low AND o.txid < :bound)
     LIMIT {most} + 1),
 r AS MATERIALIZED (
    SELECT octet_length(h.body) AS size FROM k JOIN txsaga.half h USING (txid)
     WHERE h.txid >= :low AND h.txid < :bound LIMIT {most} + 1)
SELECT EXISTS (SELECT FROM k) AND NOT (
    EXISTS (SELECT FROM txsaga.op o WHERE o.txid >= :low AND o.txid < :bound)
    AND (SELECT count(*) FROM k) <= {most}
    AND (SELECT count(*) <= {most} AND coalesce(sum(size), 0) <= {bytes} FROM r)
    AND (SELECT count(*) FROM (
            SELECT FROM txsaga.half h WHERE h.txid >= :low AND h.txid < :bound
             LIMIT {share} * (SELECT count(*) FROM r)) a)
        >= {share} * (SELECT count(*) FROM r));

-- name: spares
-- Asked when the partition is locked against writers and nothing in it is needed: all that is undecided is spared then.
-- So that is what is copied, including a transaction that was resumed since the last check.
SELECT EXISTS (SELECT FROM txsaga.half h WHERE h.txid >= :low AND h.txid < :bound
                  AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = h.txid))
    OR EXISTS (SELECT FROM txsaga.tx t WHERE t.txid >= :low AND t.txid < :bound
                  AND t.state IN ('active', 'sealed', 'prepared', 'parked'));

-- name: full_below
SELECT last_txid + 1 FROM txsaga.tick WHERE EXISTS (SELECT FROM txsaga.topic WHERE retention_bytes IS NOT NULL)
 ORDER BY id DESC LIMIT 1;

-- name: weighed
SELECT DISTINCT low FROM txsaga.weight;

-- name: weigh
-- Every topic that is not deleted gets a row, so that a partition without an assigned offset counts as weighed too.
INSERT INTO txsaga.weight (low, topic, bytes, first)
SELECT :low, t.id, coalesce(sum(octet_length(h.body)), 0), min(l.at) FROM txsaga.topic t
  LEFT JOIN (txsaga.queue q
             JOIN txsaga.log l ON l.qid = q.qid AND l.txid >= :low AND l.txid < :high
             JOIN txsaga.half h ON (h.txid, h.part, h.attempt, h.qid, h.chunk)
                              = (l.txid, l.part, l.attempt, l.qid, l.chunk)
                            AND h.txid >= :low AND h.txid < :high) ON q.topic = t.id
 WHERE strpos(t.name, '~') = 0 GROUP BY t.id ON CONFLICT DO NOTHING;

-- name: oldest_kept
-- The oldest message of a queue is kept: it is within its topic's limits. Without limits it is; of two, either one
-- releases it. What got its offset later counts as newer: an old transaction that was decided late comes after new
-- ones.
SELECT EXISTS (SELECT FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
                 JOIN LATERAL (SELECT txid, at FROM txsaga.log l
                       WHERE l.qid = q.qid AND l.base >= q.tail ORDER BY l.base LIMIT 1) l ON true
                WHERE l.txid < :bound
                  AND (l.at <= clock_timestamp() - t.retention_seconds * interval '1 second') IS NOT TRUE
                  AND (t.retention_bytes <= (SELECT coalesce(sum(w.bytes), 0) FROM txsaga.weight w
                                              WHERE w.topic = t.id AND w.low >= :bound
                                                  AND w.first >= l.at)) IS NOT TRUE);

-- name: undecided
-- Undecided. What is due sooner than in an hour keeps its partition.
SELECT EXISTS (SELECT FROM txsaga.half h WHERE h.txid < :bound
                  AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = h.txid)
                  AND NOT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid = h.txid AND d.parked IS NOT NULL)
                  AND NOT EXISTS (SELECT FROM txsaga.scheduled w
                                   WHERE w.txid = h.txid AND w.at > clock_timestamp() + interval '1 hour'));

-- name: open_transaction
-- A transaction is open.
SELECT EXISTS (SELECT FROM txsaga.tx t WHERE t.txid < :bound AND t.state IN ('active', 'sealed', 'prepared', 'parked')
                  AND NOT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid = t.txid AND d.parked IS NOT NULL)
                  AND NOT EXISTS (SELECT FROM txsaga.scheduled w
                                   WHERE w.txid = t.txid AND w.at > clock_timestamp() + interval '1 hour'));

-- name: open_branch
-- A branch is not finished, or was settled against the decision.
SELECT EXISTS (SELECT FROM txsaga.branch b
                WHERE b.txid < :bound AND b.state NOT IN ('committed', 'rolled_back', 'forgotten')
                  AND NOT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid = b.txid AND d.parked IS NOT NULL)
                  AND NOT EXISTS (SELECT FROM txsaga.scheduled w
                                   WHERE w.txid = b.txid AND w.at > clock_timestamp() + interval '1 hour'));

-- name: open_saga
-- A saga is not completely done or undone.
SELECT EXISTS (SELECT FROM txsaga.saga g WHERE g.txid < :bound
                  AND NOT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid = g.txid AND d.parked IS NOT NULL)
                  AND NOT EXISTS (SELECT FROM txsaga.scheduled w
                                   WHERE w.txid = g.txid AND w.at > clock_timestamp() + interval '1 hour'));

-- name: newest_kept
-- The newest message of a topic is kept.
SELECT EXISTS (SELECT FROM txsaga.topic t
                 JOIN LATERAL (SELECT max(l.at) AS at FROM txsaga.log l JOIN txsaga.queue q USING (qid)
                                WHERE l.txid < :bound AND q.topic = t.id AND l.base >= q.tail) l ON l.at IS NOT NULL
                WHERE (l.at <= clock_timestamp() - t.retention_seconds * interval '1 second') IS NOT TRUE
                  AND (t.retention_bytes <= (SELECT coalesce(sum(w.bytes), 0) FROM txsaga.weight w
                                              WHERE w.topic = t.id AND w.low >= :bound
                                                  AND w.first >= l.at)) IS NOT TRUE);

-- name: unread
-- A consumer group has not read it; without any group there is nothing to wait for.
SELECT EXISTS (SELECT FROM txsaga.log l
                WHERE l.txid < :bound
                  AND l.base + l.n > (SELECT min(least(c.off, (SELECT min(k.base) FROM txsaga.claim k
                                              WHERE k.grp = c.grp AND k.qid = c.qid AND k.message IS NULL)))
                                        FROM txsaga.cursor c WHERE c.qid = l.qid));

-- name: without_offset
-- Committed, without an offset.
SELECT EXISTS (SELECT FROM txsaga.op o JOIN txsaga.half h USING (txid) WHERE o.txid < :bound AND o.decision = 1
                  AND NOT EXISTS (SELECT FROM txsaga.log l WHERE l.qid = h.qid AND l.txid = h.txid)
                  AND (NOT o.keyed OR EXISTS (SELECT FROM txsaga.part p
                        WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt)));
