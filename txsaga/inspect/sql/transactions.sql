-- name: list
SELECT listed.*,
       ARRAY(SELECT DISTINCT topic.name FROM txsaga.half JOIN txsaga.queue USING (qid)
               JOIN txsaga.topic ON topic.id = queue.topic WHERE half.txid = listed.txid ORDER BY 1) AS topics
  FROM (
    SELECT f.txid, coalesce(g.name, '') AS "group", t.key, t.epoch, t.run, r.name AS resource,
           coalesce(t.opened, h.born) AS born, o.decision, coalesce(o.from_check, false) AS from_check,
           CASE WHEN o.decision IS NULL THEN w.at END AS due,
           CASE WHEN o.decision = 1 THEN 'committed' WHEN o.decision = 2 THEN 'rolled_back'
                WHEN d.parked IS NOT NULL THEN 'parked' WHEN t.state IS NOT NULL THEN t.state
                WHEN w.at IS NOT NULL THEN 'scheduled' ELSE 'prepared' END AS state
      FROM (
        SELECT txid FROM (SELECT DISTINCT txid FROM txsaga.half WHERE {halves} ORDER BY txid DESC LIMIT :first) a
        UNION SELECT txid FROM (SELECT txid FROM txsaga.tx WHERE {lives} ORDER BY txid DESC LIMIT :first) b) f
      LEFT JOIN txsaga.tx t USING (txid)
      LEFT JOIN LATERAL (SELECT pgroup, evidence, born FROM txsaga.half WHERE half.txid = f.txid LIMIT 1) h ON true
      LEFT JOIN txsaga.producer_group g ON g.id = coalesce(t.pgroup, h.pgroup)
      LEFT JOIN txsaga.resource r ON r.id = coalesce(t.evidence, h.evidence)
      LEFT JOIN txsaga.op o USING (txid)
      LEFT JOIN txsaga.doubt d USING (txid)
      LEFT JOIN txsaga.scheduled w USING (txid)) listed
 WHERE (cast(:states AS text[]) IS NULL OR state = ANY (:states))
   AND (cast(:since AS timestamptz) IS NULL OR born >= :since)
 ORDER BY txid DESC LIMIT :limit;

-- name: txid
{t}.txid = :txid;

-- name: before
{t}.txid < :before;

-- name: undecided
{t}.txid IN (SELECT txid FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')
             UNION ALL SELECT txid FROM txsaga.doubt UNION ALL SELECT txid FROM txsaga.scheduled
             UNION ALL SELECT txid FROM txsaga.half
              WHERE txid > coalesce((SELECT txid FROM txsaga.checkpoint WHERE name = 'second look'), 0) AND NOT keyed)
AND NOT EXISTS (SELECT FROM txsaga.op WHERE op.txid = {t}.txid);

-- name: none
false;

-- name: committed
EXISTS (SELECT FROM txsaga.op WHERE op.txid = half.txid AND op.decision = 1);

-- name: committed_life
tx.state = 'committed';

-- name: rolled_back
{t}.txid IN (SELECT txid FROM txsaga.op WHERE decision = 2);

-- name: decided
EXISTS (SELECT FROM txsaga.op WHERE op.txid = {t}.txid);

-- name: group
{t}.pgroup = (SELECT id FROM txsaga.producer_group WHERE name = :group);

-- name: key
-- A transaction with a key, a run, a table or a problem is in tx; so are those below.
tx.txid IN (SELECT k.txid FROM txsaga.producer_group g JOIN txsaga.tx k ON k.pgroup = g.id AND k.key = :key);

-- name: run
tx.run = :run;

-- name: table
-- Its newest transactions are enough if no other filter leaves some of them out.
tx.txid = ANY (ARRAY(SELECT DISTINCT txid FROM txsaga.effect
                      WHERE kind IN ('table', 'rows') AND :table = coalesce(payload ->> 'target',
                            coalesce((payload -> 'name' ->> -2) || '.', '') || (payload -> 'name' ->> -1))
                        AND txid < coalesce(:before, 9223372036854775807) ORDER BY txid DESC LIMIT :newest));

-- name: problem
-- What waits for a person after the decision; few branches are open, and few sagas unfinished.
tx.txid = ANY (ARRAY(SELECT txid FROM txsaga.branch WHERE :problem = 'heuristic' AND state LIKE 'heuristic%'
                        AND state NOT IN ('committed', 'rolled_back', 'forgotten')
                      UNION ALL SELECT txid FROM txsaga.saga WHERE :problem = 'stalled' AND stalled));

-- name: topic_of_half
half.qid IN (SELECT qid FROM txsaga.queue JOIN txsaga.topic ON topic.id = queue.topic WHERE topic.name = :topic);

-- name: topic_of_tx
EXISTS (SELECT FROM txsaga.half h JOIN txsaga.queue USING (qid) JOIN txsaga.topic ON topic.id = queue.topic
         WHERE h.txid = tx.txid AND topic.name = :topic);
