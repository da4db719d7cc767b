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
SELECT {columns} FROM txsaga.step WHERE txid = {txid} ORDER BY number, attempt;

-- name: attempts
SELECT {columns} FROM txsaga.step WHERE txid = %(txid)s AND name = %(name)s ORDER BY number, attempt;

-- name: enrol
INSERT INTO txsaga.flow_resource (txid, resource, lane, budget)
SELECT %(txid)s, * FROM unnest(%(resources)s::text[], %(lanes)s::bool[], %(budgets)s::float8[]);

-- name: forget_amendment
DELETE FROM txsaga.effect WHERE txid = %(txid)s AND seq = %(seq)s;

-- name: amend
INSERT INTO txsaga.effect (txid, seq, kind, payload) VALUES (%(txid)s, %(seq)s, 'amends', %(payload)s::jsonb);

-- name: start
-- What undoes the step moves on to its new attempt, with the resource in which it was to be done; a newer description
-- of it takes its place.
WITH known AS (
    SELECT kind, input, compensation, coalesce(described_on, resource, '') AS described_on FROM txsaga.step
     WHERE txid = %(txid)s AND number = %(number)s AND kind IS NOT NULL),
 moved AS (UPDATE txsaga.step SET kind = NULL, input = NULL, compensation = NULL, journal = NULL
     WHERE txid = %(txid)s AND number = %(number)s AND (kind IS NOT NULL OR journal IS NOT NULL)),
 begun AS (INSERT INTO txsaga.step
           (txid, number, attempt, name, state, hold, resource, lane, unit, branch, mark, kind, input, compensation,
            described_on)
    SELECT %(txid)s, %(number)s, %(attempt)s, %(name)s, %(state)s, %(hold)s::text, %(resource)s::text, %(lane)s,
           %(unit)s, %(branch)s::int4, %(mark)s, coalesce(said.kind, known.kind), coalesce(said.input, known.input),
           coalesce(said.compensation, known.compensation), known.described_on
      FROM (SELECT %(kind)s::text AS kind, %(input)s::jsonb AS input, %(compensation)s::jsonb AS compensation) said
      LEFT JOIN known ON said.kind IS NULL
    RETURNING txid, kind)
INSERT INTO txsaga.saga (txid, ticket, until)
SELECT txid, 0, clock_timestamp() + %(lease)s * interval '1 second' FROM begun WHERE kind IS NOT NULL
    ON CONFLICT DO NOTHING;

-- name: end
UPDATE txsaga.step SET state = %(state)s, "left" = %(left)s, error = %(error)s, mark = %(mark)s,
       output = %(output)s::jsonb, journal = %(journal)s::jsonb, at = clock_timestamp()
 WHERE txid = %(txid)s AND number = %(number)s AND attempt = %(attempt)s;

-- name: journal
SELECT s.number, j.seq::int4, s.resource, s.unit, j.said ->> 'text', j.said -> 'parameters', (j.said ->> 'rows')::int4
  FROM txsaga.step s, jsonb_array_elements(s.journal) WITH ORDINALITY AS j (said, seq)
 WHERE s.txid = %(txid)s ORDER BY s.number, j.seq;

-- name: units
SELECT resource, number, branch, attempt, decision, at FROM txsaga.flow_unit WHERE txid = {txid}
 ORDER BY resource, number;

-- name: put
INSERT INTO txsaga.flow_unit (txid, resource, number, branch, attempt, decision)
VALUES (%(txid)s, %(resource)s, %(number)s, %(branch)s, %(attempt)s, %(decision)s)
    ON CONFLICT (txid, resource, number) DO UPDATE SET branch = excluded.branch, attempt = excluded.attempt,
       decision = excluded.decision, at = clock_timestamp();

-- name: name
INSERT INTO txsaga.branch (txid, number, attempt, resource, state, aux)
SELECT %(txid)s, coalesce(%(number)s::int4, (SELECT max(number) FROM txsaga.branch WHERE txid = %(txid)s) + 1, 1),
       %(attempt)s, %(resource)s, 'active', %(aux)s
RETURNING number;

-- name: change
-- Committing a unit marks its branches as prepared; others keep their state and are rolled back.
UPDATE txsaga.branch b SET state = coalesce(%(state)s, b.state), decision = coalesce(%(decision)s::int2, b.decision),
       at = clock_timestamp()
  FROM unnest(%(numbers)s::int4[], %(attempts)s::int4[]) AS n (number, attempt)
 WHERE b.txid = %(txid)s AND (b.number, b.attempt) = (n.number, n.attempt) AND b.state = ANY (%(open)s);

-- name: drop_compensations
DELETE FROM txsaga.saga WHERE txid = %(txid)s;

-- name: take_over
-- Its steps are reserved for the new owner for a time, in case of ROLLBACK.
WITH taken AS (UPDATE txsaga.tx SET owner = owner + 1, touched = clock_timestamp()
     WHERE txid = %(txid)s AND state = 'active' RETURNING txid, owner),
 reserved AS (UPDATE txsaga.saga s SET until = clock_timestamp() + %(lease)s * interval '1 second'
    FROM taken WHERE s.txid = taken.txid)
SELECT owner FROM taken;

-- name: alarm
UPDATE txsaga.step SET late = true
 WHERE txid = %(txid)s AND number = %(number)s AND attempt = %(attempt)s AND NOT late;

-- name: held_steps
-- Steps whose work is held.
SELECT s.txid, s.number, s.attempt, s.name, s.resource, s.lane, s.late, r.budget,
       clock_timestamp() - s.at AS age
  FROM txsaga.step s
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
