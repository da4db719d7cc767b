-- name: undecided_ones
-- Transactions without a decision.
SELECT u.txid, coalesce(t.pgroup, h.pgroup) AS pgroup, d.parked,
       clock_timestamp() - coalesce(t.opened, h.born) AS age,
       coalesce(t.state, 'sealed') = 'sealed' AND coalesce(t.evidence, h.evidence) IS NULL
           AND d.parked IS NULL AS unproven
  FROM (
    SELECT txid FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')
    UNION SELECT txid FROM txsaga.doubt
    UNION SELECT h.txid FROM txsaga.half h
     WHERE h.txid > coalesce((SELECT txid FROM txsaga.checkpoint WHERE name = 'sweep'), 0) AND NOT h.keyed) u
  LEFT JOIN txsaga.tx t USING (txid) LEFT JOIN txsaga.doubt d USING (txid)
  LEFT JOIN LATERAL (SELECT born, pgroup, evidence FROM txsaga.half WHERE half.txid = u.txid LIMIT 1) h ON true
 WHERE NOT EXISTS (SELECT FROM txsaga.op WHERE op.txid = u.txid)
   AND NOT EXISTS (SELECT FROM txsaga.scheduled w WHERE w.txid = u.txid);

-- name: undecided
SELECT count(*), count(parked), max(age),
       (SELECT count(*) FROM txsaga.scheduled w WHERE NOT EXISTS (SELECT FROM txsaga.op WHERE op.txid = w.txid))
  FROM ({statement undecided_ones}) b;

-- name: readings
SELECT c.grp, t.name, q.idx, q.tail, q.head, c.off, least(k.lowest, c.off),
       coalesce(k.held, 0)::int8, coalesce(k.retrying, 0)::int8, coalesce(k.in_line, 0)::int8,
       CASE WHEN least(k.lowest, c.off) < q.head THEN (
         SELECT clock_timestamp() - at FROM txsaga.log l WHERE l.qid = c.qid
            AND l.base <= greatest(least(k.lowest, c.off), q.tail) ORDER BY l.base DESC LIMIT 1) END
  FROM txsaga.cursor c JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
  LEFT JOIN (
    SELECT grp, qid, min(base) FILTER (WHERE message IS NULL) AS lowest,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NOT NULL AND until > clock_timestamp()) AS held,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NULL AND attempts = 0 AND message IS NULL) AS in_line,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NULL AND (attempts > 0 OR message IS NOT NULL)
                                                    OR until <= clock_timestamp() AND receipt IS NOT NULL) AS retrying
      FROM txsaga.claim GROUP BY grp, qid) k ON k.grp = c.grp AND k.qid = c.qid
 ORDER BY c.grp, t.name, q.idx;

-- name: members
-- A member that reads a stream has a lease; one of a work queue has claims. A claim bound to a transaction does not
-- count: its member may be dead.
SELECT kind, count(*) FROM txsaga.lease WHERE kind LIKE 'member:%' AND until > clock_timestamp() GROUP BY kind;

-- name: hands
SELECT c.grp, t.name, count(DISTINCT c.member) FROM txsaga.claim c JOIN txsaga.queue q USING (qid)
  JOIN txsaga.topic t ON t.id = q.topic WHERE c.receipt IS NOT NULL AND c.txid IS NULL
   AND c.until > clock_timestamp()
 GROUP BY c.grp, t.name;

-- name: dead
SELECT grp, count(*) FROM txsaga.dead_letter GROUP BY grp ORDER BY grp;

-- name: dispatch
SELECT t.id, clock_timestamp() - t.at,
       (SELECT count(*) FROM txsaga.op WHERE xid >= pg_snapshot_xmax(t.snap) AND decision = 1)
     + (SELECT count(*) FROM txsaga.op WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(t.snap))) AND decision = 1),
       ARRAY(SELECT o.name || '/' || q.idx FROM txsaga.queue q JOIN txsaga.topic o ON o.id = q.topic
              WHERE q.reached IS NOT NULL ORDER BY o.name, q.idx)
  FROM (SELECT id, snap, at FROM txsaga.tick ORDER BY id DESC LIMIT 1) t;

-- name: backlogs
WITH b AS ({statement undecided_ones})
SELECT g.id, g.name, count(b.txid), count(b.parked), count(q.txid), max(b.age), max(b.age) FILTER (WHERE b.unproven),
       (SELECT count(*) FROM txsaga.lease l WHERE l.kind = 'checker:' || g.id AND l.until > clock_timestamp())
  FROM txsaga.producer_group g LEFT JOIN b ON b.pgroup = g.id LEFT JOIN txsaga.question q ON q.txid = b.txid
 WHERE g.transactional IS DISTINCT FROM false OR b.txid IS NOT NULL
 GROUP BY g.id, g.name ORDER BY g.name;

-- name: answers
SELECT pgroup, answer, n FROM txsaga.tally ORDER BY pgroup, answer;

-- name: doubts
SELECT d.txid, g.name, t.key, clock_timestamp() - coalesce(t.opened, h.born), q.member,
       d.checks, d.check_at, d.parked, d.remarks
  FROM txsaga.doubt d JOIN txsaga.producer_group g ON g.id = d.pgroup
  LEFT JOIN txsaga.tx t USING (txid) LEFT JOIN txsaga.question q USING (txid)
  LEFT JOIN LATERAL (SELECT born FROM txsaga.half WHERE half.txid = d.txid LIMIT 1) h ON true
 WHERE NOT EXISTS (SELECT FROM txsaga.op WHERE op.txid = d.txid) AND (d.parked IS NOT NULL OR NOT :parked)
   AND (cast(:group AS text) IS NULL OR g.name = :group)
 ORDER BY d.txid LIMIT :limit;

-- name: decisions
SELECT txid, decision FROM txsaga.op WHERE txid = ANY (:txids);

-- name: history
SELECT at, what, who, why, login FROM txsaga.event WHERE txid = :txid ORDER BY id;

-- name: checks
SELECT checks, check_at, parked, remarks FROM txsaga.doubt d
 WHERE txid = :txid AND NOT EXISTS (SELECT FROM txsaga.op WHERE op.txid = d.txid);

-- name: last_round
SELECT holder, clock_timestamp() - until FROM txsaga.lease WHERE kind = 'round' AND name = :role;

-- name: resource
SELECT id, name, database FROM txsaga.resource WHERE id = :id;

-- name: given
SELECT base, n, at FROM txsaga.log
 WHERE qid = :qid AND base >= :low AND base < :high AND txid = :txid AND part = :part AND attempt = :attempt
 ORDER BY base LIMIT :chunks;
