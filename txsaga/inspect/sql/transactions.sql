-- name: list
SELECT f.txid, coalesce(g.name, '') AS group_name, t.key, t.epoch, t.state, r.name AS resource,
       coalesce(t.opened, h.born) AS born, o.decision, coalesce(o.from_check, false) AS from_check, d.parked,
       CASE WHEN o.decision IS NULL THEN w.at END AS due
  FROM (
    SELECT txid FROM (SELECT DISTINCT txid FROM txsaga.half {halves} ORDER BY txid DESC LIMIT :limit) a
    UNION SELECT txid FROM (SELECT txid FROM txsaga.tx {lives} ORDER BY txid DESC LIMIT :limit) b) f
  LEFT JOIN txsaga.tx t USING (txid)
  LEFT JOIN LATERAL (SELECT pgroup, evidence, born FROM txsaga.half WHERE half.txid = f.txid LIMIT 1) h ON true
  LEFT JOIN txsaga.producer_group g ON g.id = coalesce(t.pgroup, h.pgroup)
  LEFT JOIN txsaga.resource r ON r.id = coalesce(t.evidence, h.evidence)
  LEFT JOIN txsaga.op o USING (txid)
  LEFT JOIN txsaga.doubt d USING (txid)
  LEFT JOIN txsaga.scheduled w USING (txid)
 ORDER BY f.txid DESC LIMIT :limit;
