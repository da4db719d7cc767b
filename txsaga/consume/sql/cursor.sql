-- name: members
-- The live members on the topic of cursor `c`.
SELECT l.name FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
  JOIN txsaga.lease l ON l.kind = 'member:' || c.grp || '/' || t.name AND l.until > clock_timestamp()
 WHERE q.qid = c.qid;

-- name: create
INSERT INTO txsaga.cursor (grp, qid, off)
SELECT :group, qid, off FROM unnest(CAST(:qids AS int4[]), CAST(:offsets AS int8[])) AS n (qid, off)
ON CONFLICT DO NOTHING;

-- name: lock
-- In its own statement, so that the next one sees an intent that was written meanwhile.
SELECT off, owner, epoch FROM txsaga.cursor WHERE grp = :group AND qid = :qid FOR UPDATE;

-- name: lock_all
-- In the order in which decisions lock cursors: otherwise the two could deadlock.
SELECT qid FROM txsaga.cursor WHERE grp = :group AND qid = ANY (:qids) ORDER BY qid FOR UPDATE;

-- name: lock_owned
-- In the same order.
SELECT c.qid FROM txsaga.cursor c JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
 WHERE c.grp = :group AND c.owner = :member AND t.name = ANY (:topics) ORDER BY c.qid FOR UPDATE OF c;

-- name: leave
UPDATE txsaga.cursor c SET owner = NULL FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
 WHERE q.qid = c.qid AND c.grp = :group AND c.owner = :member AND t.name = ANY (:topics);

-- name: acquire
UPDATE txsaga.cursor c SET owner = :member, epoch = epoch + 1
 WHERE grp = :group AND qid = :qid AND :member IN ({statement members})
   AND (owner IS NULL OR owner = :member OR owner NOT IN ({statement members}))
   AND NOT EXISTS (SELECT FROM txsaga.intent i WHERE i.grp = c.grp AND i.qid = c.qid)
RETURNING grp, qid, off, epoch;

-- name: release
UPDATE txsaga.cursor SET owner = NULL WHERE grp = :group AND qid = :qid AND owner = :member;

-- name: advance
UPDATE txsaga.cursor c SET off = :to
 WHERE grp = :group AND qid = :qid AND owner = :member AND epoch = :epoch AND off IN (:offset, :to)
   AND NOT EXISTS (SELECT FROM txsaga.intent i WHERE i.grp = c.grp AND i.qid = c.qid);

-- name: reset
UPDATE txsaga.cursor c SET off = n.off, owner = NULL, epoch = epoch + 1
  FROM unnest(CAST(:qids AS int4[]), CAST(:offsets AS int8[])) AS n (qid, off)
 WHERE c.grp = :group AND c.qid = n.qid;

-- name: forget
DELETE FROM txsaga.cursor WHERE grp = :group AND qid = ANY (:qids);

-- name: in_use
-- Whether a live member owns one of these queues or holds messages of one, or a transaction is bound to one.
SELECT EXISTS (SELECT FROM txsaga.cursor c
                WHERE c.grp = :group AND c.qid = ANY (:qids) AND c.owner IN ({statement members}))
    OR EXISTS (SELECT FROM txsaga.claim WHERE grp = :group AND qid = ANY (:qids)
                  AND receipt IS NOT NULL AND until > clock_timestamp())
    OR EXISTS (SELECT FROM txsaga.intent WHERE grp = :group AND qid = ANY (:qids));

-- name: readers
SELECT DISTINCT grp FROM txsaga.cursor WHERE qid = ANY (:qids) ORDER BY grp;

-- name: purge
-- The log keeps its rows until their partition is dropped, but groups read nothing before the tail.
WITH b AS (SELECT qid, tail, head FROM txsaga.queue WHERE qid = ANY (:qids) ORDER BY qid FOR UPDATE),
 q AS (UPDATE txsaga.queue SET tail = b.head FROM b WHERE queue.qid = b.qid),
 c AS (UPDATE txsaga.cursor SET off = b.head, owner = NULL, epoch = epoch + 1 FROM b WHERE cursor.qid = b.qid)
SELECT coalesce(sum(head - tail), 0)::int8 FROM b;

-- name: intent
SELECT grp AS "group", qid, start, "end", epoch, txid, member FROM txsaga.intent WHERE grp = :group AND qid = :qid;

-- name: bind
-- It begins where the transaction's last one ended, or repeats that.
INSERT INTO txsaga.intent (grp, qid, start, "end", epoch, txid, member)
VALUES (:group, :qid, :start, :end, :epoch, :txid, :member)
ON CONFLICT (grp, qid) DO UPDATE SET "end" = excluded."end"
 WHERE intent.txid = excluded.txid
   AND (intent."end" = excluded.start OR intent."end" = excluded."end" AND intent.start <= excluded.start)
RETURNING start;

-- name: bound
SELECT c.grp, c.qid, c.off, i.start FROM txsaga.intent i JOIN txsaga.cursor c USING (grp, qid)
 WHERE i.txid = :txid ORDER BY grp, qid FOR UPDATE OF c;

-- name: move
UPDATE txsaga.cursor c SET off = i."end" FROM txsaga.intent i WHERE i.txid = :txid AND c.grp = i.grp AND c.qid = i.qid;
