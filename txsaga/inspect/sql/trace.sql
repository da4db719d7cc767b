-- name: life
SELECT key, epoch, owner, state, opened, touched, pgroup, evidence, lease FROM txsaga.tx WHERE txid = :txid;

-- name: halves
SELECT h.part, h.attempt, t.name, q.idx, h.qid, t.type, sum(h.n)::int8 AS messages, count(*) AS chunks,
       min(h.born) AS born, NOT h.keyed OR coalesce(p.attempt = h.attempt, false) AS counts,
       min(h.pgroup) AS pgroup, min(h.evidence) AS evidence
  FROM txsaga.half h JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
  LEFT JOIN txsaga.part p ON p.txid = h.txid AND p.part = h.part
 WHERE h.txid = :txid GROUP BY h.part, h.attempt, t.name, q.idx, h.qid, t.type, h.keyed, p.attempt
 ORDER BY h.part, h.attempt, min(h.born), t.name, q.idx;

-- name: effects
SELECT e.seq, e.kind, t.name, q.idx, coalesce(e.payload ->> 'of', e.payload ->> 'as')::int8 AS other
  FROM txsaga.effect e LEFT JOIN txsaga.queue q ON q.qid = (e.payload ->> 'qid')::int4
  LEFT JOIN txsaga.topic t ON t.id = q.topic WHERE e.txid = :txid ORDER BY e.seq;

-- name: written
SELECT e.part, e.attempt, coalesce(e.target, concat_ws('.', e.name ->> -2, e.name ->> -1)), e.mode, e.rows,
       p.attempt IS NOT NULL AS counts
  FROM (SELECT txid, seq, r.* FROM txsaga.effect
          CROSS JOIN jsonb_to_record(payload) r (part int4, attempt int4, target text, name jsonb, mode text, rows int8)
         WHERE txid = :txid AND kind IN ('table', 'rows')) e
  LEFT JOIN txsaga.part p ON (p.txid, p.part, p.attempt) = (e.txid, e.part, e.attempt) ORDER BY e.seq;

-- name: bound
SELECT i.grp, i.member, t.name, q.idx, i.start AS first, i."end" - 1 AS last
  FROM txsaga.intent i JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic WHERE i.txid = :txid
UNION ALL
SELECT c.grp, coalesce(c.member, ''), t.name, q.idx, c.base, c.base + c.size - 1
  FROM txsaga.claim c JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic WHERE c.txid = :txid
 ORDER BY 1, 3, 4, 5;

-- name: amended
SELECT n.txid, n.touched AS at
  FROM txsaga.tx t
  JOIN txsaga.tx n ON n.pgroup = t.pgroup AND n.key = t.key AND n.epoch > t.epoch AND n.state = 'committed'
  JOIN txsaga.effect e ON e.txid = n.txid AND e.kind = 'amends' AND (e.payload ->> 'of')::int8 = t.txid
 WHERE t.txid = :txid ORDER BY n.epoch LIMIT 1;

-- name: due
SELECT at FROM txsaga.scheduled WHERE txid = :txid;

-- name: doubt
-- Remarks were added later than the table: a doubt from before has none.
SELECT checks, check_at, parked, remarks
  FROM txsaga.doubt d WHERE txid = :txid;

-- name: audits
SELECT at, what, who, why FROM txsaga.event WHERE txid = :txid ORDER BY id;

-- name: op
SELECT decision, from_check, (SELECT k.at FROM txsaga.tick k WHERE pg_visible_in_snapshot(o.xid, k.snap)
                               ORDER BY k.id LIMIT 1) AS before
  FROM txsaga.op o WHERE txid = :txid;
