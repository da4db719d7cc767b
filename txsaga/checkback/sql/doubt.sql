-- name: waiting
-- The time is read once: an index can't be searched for a value that changes from row to row.
SELECT EXISTS (SELECT FROM txsaga.doubt WHERE parked IS NULL AND check_at <= (SELECT clock_timestamp()))
    OR EXISTS (SELECT FROM txsaga.question WHERE until <= (SELECT clock_timestamp())
                  OR (until IS NULL AND asked <= (SELECT clock_timestamp()) - interval '1 second'))
    OR EXISTS (SELECT FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')
                  AND touched <= (SELECT clock_timestamp()) - least(%(age)s, (SELECT min((checks ->> 'min_age')::float8)
                                  FROM txsaga.producer_group)) * interval '1 second'
                  AND touched <= (SELECT clock_timestamp()) - interval '1 second'
                      * coalesce((SELECT (p.checks ->> 'min_age')::float8 FROM txsaga.producer_group p
                                   WHERE p.id = tx.pgroup), %(age)s)
                  AND (coordinator IS NULL OR state <> 'prepared')
                  AND (state <> 'active' OR touched <= (SELECT clock_timestamp())
                                                         - coalesce(lease, %(lease)s) * interval '1 second')
                  AND NOT EXISTS (SELECT FROM txsaga.doubt d WHERE d.txid = tx.txid))
    OR EXISTS (
        SELECT FROM (VALUES (%(first)s, least(%(age)s, (SELECT min((checks ->> 'min_age')::float8)
                       FROM txsaga.producer_group))), (%(second)s, %(behind)s)) AS look(name, behind)
         WHERE (SELECT t.last_txid FROM txsaga.tick t
                 WHERE t.at <= (SELECT clock_timestamp()) - look.behind * interval '1 second'
                 ORDER BY t.id DESC LIMIT 1)
             > coalesce((SELECT c.txid FROM txsaga.checkpoint c WHERE c.name = look.name), 0));

-- name: park_dispatched
-- Messages with offsets were committed, even if their decision was deleted: an operator must handle them, or check-back
-- would roll back what readers have seen. The log has no index by transaction. It is read from where the oldest of them
-- was stored, a place found by binary search, since times rise with offsets; but only for the newest messages: a round
-- has a bound.
WITH RECURSIVE f AS MATERIALIZED (SELECT unnest(%(txids)s::int8[]) AS txid),
 h AS MATERIALIZED (
    SELECT qid, min(born) - interval '10 seconds' AS born FROM f JOIN LATERAL (
        SELECT qid, born FROM txsaga.half WHERE half.txid = f.txid OFFSET 0) h ON true GROUP BY qid),
 place (qid, born, low, high) AS (
    SELECT q.qid, h.born, greatest(q.tail, q.head - %(recent)s / (SELECT count(*) FROM h)), q.head
      FROM h JOIN txsaga.queue q USING (qid)
     UNION ALL
    SELECT p.qid, p.born, CASE WHEN l.at >= p.born THEN p.low ELSE (p.low + p.high) / 2 + 1 END,
           CASE WHEN l.at >= p.born THEN (p.low + p.high) / 2 ELSE p.high END
      FROM place p LEFT JOIN LATERAL (
            SELECT at FROM txsaga.log WHERE log.qid = p.qid AND log.base <= (p.low + p.high) / 2
             ORDER BY base DESC LIMIT 1) l ON true
     WHERE p.low < p.high),
 found AS MATERIALIZED (
    SELECT DISTINCT l.txid FROM place p JOIN txsaga.queue q USING (qid)
      JOIN txsaga.log l ON l.qid = p.qid AND l.base >= p.low AND l.base < q.head JOIN f ON f.txid = l.txid
     WHERE p.low = p.high)
UPDATE txsaga.doubt d SET parked = clock_timestamp(), remarks = {remark} FROM found
 WHERE d.txid = found.txid AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = d.txid)
RETURNING d.txid;

-- name: settle
-- Only plain half messages: a keyed transaction is decided with its home effects, by its ledger alone (R2).
WITH x AS MATERIALIZED (
    SELECT * FROM unnest(%(txids)s::int8[], %(decisions)s::int2[], %(whys)s::text[]) AS x(txid, decision, why)),
 h AS MATERIALIZED (
    SELECT x.*, h.pgroup FROM x
      JOIN LATERAL (SELECT pgroup FROM txsaga.half WHERE half.txid = x.txid AND NOT keyed LIMIT 1) h ON true),
 decided AS (SELECT txid, decision, false AS keyed, true AS from_check FROM h),
 o AS (
    {statement store/decision.write}
        ON CONFLICT (txid) DO NOTHING RETURNING txid),
 e AS (
    INSERT INTO txsaga.event (txid, what, who, why)
    SELECT txid, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, %(who)s, why FROM h JOIN o USING (txid)
     ORDER BY txid),
 gone AS (DELETE FROM txsaga.doubt USING h WHERE doubt.txid = h.txid RETURNING doubt.txid, doubt.remarks),
 r AS (INSERT INTO txsaga.event (txid, at, what, who, why)
    SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r),
 t AS (
    INSERT INTO txsaga.tally (pgroup, answer, n)
    SELECT pgroup, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, count(*) FROM h JOIN o USING (txid)
     GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n)
SELECT txid FROM o;

-- name: stands
SELECT txid, decision FROM txsaga.op WHERE txid = ANY (%(lost)s);

-- name: leads
SELECT FROM txsaga.lease WHERE (kind, name, holder, epoch) = (%(kind)s, %(name)s, %(holder)s, %(epoch)s)
   AND until > clock_timestamp() FOR SHARE;

-- name: put_off
WITH x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(bys)s::float8[], %(whys)s::text[], %(counted)s::bool[], %(anew)s::bool[])
        AS x(txid, by, why, counted, anew)),
 d AS (
    UPDATE txsaga.doubt d SET checks = d.checks + x.counted::int,
           remarks = CASE x.why WHEN '' THEN d.remarks ELSE {remark} END,
           check_at = clock_timestamp() + x.by * interval '1 second',
           resumed = CASE WHEN x.anew THEN clock_timestamp() ELSE d.resumed END
      FROM x WHERE d.txid = x.txid RETURNING d.pgroup, x.counted, x.why)
INSERT INTO txsaga.tally (pgroup, answer, n)
SELECT pgroup, CASE WHEN counted THEN 'UNKNOWN' ELSE 'NO_ANSWER' END, count(*) FROM d WHERE why <> ''
 GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n;

-- name: hold
-- A row locked by another session is left to the next heartbeat: it does not keep others from being held. When the work
-- is over, the hold is over too, but not the minimum age that its group sets.
WITH x AS MATERIALIZED (
SELECT x.txid, x.pgroup, x.keyed FROM {held} AS x(txid, pgroup, keyed)
 WHERE (SELECT o.txid FROM txsaga.op o WHERE o.txid = x.txid) IS NULL),
 l AS MATERIALIZED (
    SELECT d.txid FROM txsaga.doubt d WHERE d.txid = ANY (ARRAY(SELECT txid FROM x)) FOR UPDATE SKIP LOCKED),
 u AS (
    UPDATE txsaga.doubt d SET check_at = greatest(d.check_at, clock_timestamp() + %(lease)s * interval '1 second')
     WHERE d.txid = ANY (ARRAY(SELECT txid FROM l)))
INSERT INTO txsaga.doubt (txid, pgroup, keyed, check_at)
SELECT x.txid, x.pgroup, x.keyed, greatest(
       clock_timestamp() + %(lease)s * interval '1 second',
       coalesce((SELECT t.touched FROM txsaga.tx t WHERE t.txid = x.txid),
                (SELECT h.born FROM txsaga.half h WHERE h.txid = x.txid LIMIT 1))
       + (SELECT (p.checks ->> 'min_age')::float8 FROM txsaga.producer_group p WHERE p.id = x.pgroup)
         * interval '1 second')
  FROM x WHERE (SELECT d.txid FROM txsaga.doubt d WHERE d.txid = x.txid) IS NULL ORDER BY x.txid
    ON CONFLICT (txid) DO NOTHING;

-- name: call_hold
SELECT txsaga.hold(%(txids)s::int8[], %(lease)s::float8);

-- name: is_held
SELECT txid FROM txsaga.doubt WHERE txid = %(txid)s AND check_at > clock_timestamp() AND parked IS NULL
   AND checks = 0 AND remarks = '[]';

-- name: rests
-- The same times as in a sweep.
SELECT FROM (
    (SELECT pgroup, touched AS born, CASE state WHEN 'active' THEN lease END AS least FROM txsaga.tx
        WHERE txid = %(txid)s)
     UNION ALL
    (SELECT pgroup, born, CASE WHEN immunity IS NOT NULL THEN greatest(immunity, %(least)s) END FROM txsaga.half
      WHERE txid = %(txid)s AND NOT keyed LIMIT 1)) x
  LEFT JOIN txsaga.producer_group p ON p.id = x.pgroup
 WHERE x.born + interval '1 second' * greatest(coalesce((p.checks ->> 'min_age')::float8, %(age)s), x.least)
       > clock_timestamp();

-- name: forget
-- Looked up one by one: a join would read every decision, each time.
WITH gone AS (DELETE FROM txsaga.doubt d WHERE (SELECT o.txid FROM txsaga.op o WHERE o.txid = d.txid) IS NOT NULL
   AND (SELECT q.txid FROM txsaga.question q WHERE q.txid = d.txid) IS NULL RETURNING d.txid, d.remarks)
INSERT INTO txsaga.event (txid, at, what, who, why)
SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r;

-- name: shortest
-- The minimum age of any group: half messages are examined then, and due at their own group's age.
SELECT least(%(age)s, min((checks ->> 'min_age')::float8)) FROM txsaga.producer_group;

-- name: checkpoint
INSERT INTO txsaga.checkpoint (name, txid) VALUES (%(name)s, 0) ON CONFLICT DO NOTHING;

-- name: examined
-- How far a pass has got, and how far it may go now; nothing while another round is at it.
SELECT c.txid, least(c.txid + %(range)s, coalesce((
         SELECT t.last_txid FROM txsaga.tick t
          WHERE t.at <= (SELECT clock_timestamp()) - %(behind)s * interval '1 second' ORDER BY t.id DESC LIMIT 1), 0))
  FROM txsaga.checkpoint c WHERE c.name = %(name)s FOR UPDATE OF c SKIP LOCKED;

-- name: examine_on
UPDATE txsaga.checkpoint SET txid = %(txid)s WHERE name = %(name)s;

-- name: left_alone
-- The states are those that the index covers. What voted yes in another store's transaction waits for that store.
INSERT INTO txsaga.doubt (txid, pgroup, keyed)
SELECT tx.txid, tx.pgroup, true FROM txsaga.tx LEFT JOIN txsaga.producer_group p ON p.id = tx.pgroup
 WHERE tx.state IN ('active', 'sealed', 'prepared')
   AND tx.touched <= (SELECT clock_timestamp()) - %(shortest)s * interval '1 second'
   AND tx.touched <= (SELECT clock_timestamp())
                     - coalesce((p.checks ->> 'min_age')::float8, %(age)s) * interval '1 second'
   AND (tx.state <> 'active' OR tx.touched <= (SELECT clock_timestamp())
                                              - coalesce(tx.lease, %(lease)s) * interval '1 second')
   AND (tx.coordinator IS NULL OR tx.state <> 'prepared')
    ON CONFLICT DO NOTHING;
