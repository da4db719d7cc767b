-- name: record
SELECT txid, pgroup, {token}, key, epoch, owner, state, evidence, run, coordinator, lease
  FROM txsaga.tx WHERE txid = {txid}{lock};

-- name: touch
UPDATE txsaga.tx SET touched = clock_timestamp() WHERE txid = {txid} AND state = 'active';

-- name: outcome
SELECT (SELECT decision FROM txsaga.op WHERE txid = {txid}),
       (SELECT payload FROM txsaga.effect WHERE txid = {txid} AND seq = {amends});

-- name: resources
SELECT resource, lane, budget FROM txsaga.flow_resource WHERE txid = {txid} ORDER BY resource, lane;

-- name: steps
SELECT {fields}, (SELECT count(*) FROM txsaga.flow_statement j
                   WHERE j.txid = f.txid AND j.step = f.number AND f.state = 'done')
  FROM txsaga.flow_step f WHERE txid = {txid} ORDER BY number, attempt;

-- name: finish
WITH{record} closed AS (
    UPDATE txsaga.flow_step SET state = %(state)s, mark = %(mark)s, why = %(why)s, branch = %(branch)s,
           ended = clock_timestamp()
     WHERE txid = %(txid)s AND number = %(number)s AND attempt = %(attempt)s)
UPDATE txsaga.step SET state = %(target)s, "left" = %(left)s, error = NULL, at = clock_timestamp(),
       output = coalesce(%(output)s::jsonb, output)
 WHERE txid = %(txid)s AND number = %(number)s AND state = ANY(%(sources)s);

-- name: held_steps
-- Steps whose work is held.
SELECT s.txid, s.number, s.attempt, s.name, s.resource, s.lane, s.late, r.budget,
       clock_timestamp() - s.ended AS age
  FROM txsaga.flow_step s
  JOIN txsaga.branch b ON (b.txid, b.number, b.attempt) = (s.txid, s.branch, s.attempt)
  JOIN txsaga.tx t ON t.txid = s.txid AND t.state IN ('active', 'sealed')
  JOIN txsaga.flow_resource r ON (r.txid, r.resource, r.lane) = (s.txid, s.resource, s.lane)
 WHERE s.branch IS NOT NULL AND s.state = 'done' AND b.state = 'ended' AND b.decision IS NULL;

-- name: held
-- By resource.
WITH held AS ({statement held_steps})
SELECT resource, count(*), count(*) FILTER (WHERE age > budget * interval '1 second'), max(age)
  FROM held GROUP BY resource ORDER BY resource;

-- name: overdue
WITH held AS ({statement held_steps})
SELECT txid, number, attempt, name, resource, lane, age, budget * interval '1 second' FROM held
 WHERE NOT late AND age > budget * interval '1 second' ORDER BY txid, number LIMIT :limit;
