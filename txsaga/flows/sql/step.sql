-- name: record
-- A lease ends between two thirds of it and all of it: the sagas of one process must not all expire at once.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
           AS r(txid, owner, number, name, kind, resource, input, compensation, action, expires)),
 t AS MATERIALIZED (
    SELECT k.txid, k.owner FROM (SELECT DISTINCT txid, owner FROM r ORDER BY txid) o
     CROSS JOIN LATERAL (SELECT txid, owner FROM txsaga.tx WHERE tx.txid = o.txid AND tx.owner = o.owner
                            AND tx.state = 'active' OFFSET 0 FOR SHARE) k),
 g AS (INSERT INTO txsaga.saga (txid, ticket, until)
    SELECT txid, 0, clock_timestamp() + {lease} * (2 + random()) / 3 * interval '1 second'
        FROM t ON CONFLICT DO NOTHING),
 n AS (INSERT INTO txsaga.step
           (txid, number, name, attempt, state, hold, kind, resource, input, compensation, action, due, "left")
    SELECT r.txid, r.number, r.name, t.owner, 'started', 'commit', r.kind, nullif(r.resource, ''), r.input::jsonb,
           nullif(r.compensation, '')::jsonb, nullif(r.action, '')::jsonb,
           CASE WHEN r.expires >= 0 THEN clock_timestamp() + r.expires * interval '1 second' END, 'unknown'
      FROM r JOIN t USING (txid, owner) ON CONFLICT DO NOTHING)
SELECT txid FROM t;

-- name: mark
-- At most one attempt of a step has a kind: the one that may have to be undone, or done.
-- The states that an event leaves are passed in, from the one table of the lifecycle.
UPDATE txsaga.step SET state = coalesce(nullif(m.target, ''), step.state),
       "left" = coalesce(nullif(m.remains, ''), step."left"),
       output = coalesce(nullif(m.output, '')::jsonb, step.output),
       error = coalesce(nullif(m.error, ''), step.error),
       tries = CASE WHEN m.tries < 0 THEN 0 ELSE step.tries + m.tries END, at = clock_timestamp()
  FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    AS m(txid, owner, number, target, sources, remains, output, error, tries)
  JOIN txsaga.tx t ON t.txid = m.txid AND t.owner = m.owner
 WHERE step.txid = m.txid AND step.number = m.number AND step.kind IS NOT NULL
   AND step.state = ANY (string_to_array(m.sources, ','))
RETURNING step.txid, step.number, m.owner;

-- name: settle
-- Runs after the owner's decision, in its commit; the current owner sees to the steps, no matter who decided.
WITH d AS MATERIALIZED (
    SELECT w.txid, w.driver, tx.state, tx.owner FROM unnest($1, $2, $3) AS w(txid, owner, driver)
      JOIN txsaga.tx ON tx.txid = w.txid AND tx.owner = w.owner
     WHERE tx.state IN ('committed', 'rolled_back')),
 f AS (INSERT INTO txsaga.step
           (txid, number, name, attempt, state, hold, kind, resource, input, compensation, action, due, "left")
    SELECT r.txid, r.number, r.name, d.owner, 'started', 'commit', r.kind, nullif(r.resource, ''), r.input::jsonb,
           nullif(r.compensation, '')::jsonb, nullif(r.action, '')::jsonb,
           CASE WHEN r.expires >= 0 THEN clock_timestamp() + r.expires * interval '1 second' END, 'unknown'
      FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12)
           AS r(txid, number, name, kind, resource, input, compensation, action, expires) JOIN d USING (txid)
     WHERE d.state = 'committed'
        ON CONFLICT (txid, number, attempt) DO UPDATE SET at = clock_timestamp() RETURNING txid),
 c AS (UPDATE txsaga.step SET state = 'compensating', at = clock_timestamp() FROM d
        WHERE step.txid = d.txid AND d.state = 'rolled_back' AND step.state IN ('done', 'failed', 'started')
          AND step.action IS NULL AND step.kind IS NOT NULL
    RETURNING step.txid),
 l AS MATERIALIZED (SELECT txid FROM f UNION SELECT txid FROM c),
 g AS (DELETE FROM txsaga.saga USING d WHERE saga.txid = d.txid AND d.state = 'committed'
          AND NOT EXISTS (SELECT FROM l WHERE l.txid = d.txid)),
 u AS (INSERT INTO txsaga.saga (txid, ticket, until, driver)
    SELECT d.txid, 0, clock_timestamp() + {lease} * (2 + random()) / 3 * interval '1 second', d.driver
      FROM d JOIN l USING (txid)
        ON CONFLICT (txid) DO UPDATE SET until = excluded.until, driver = excluded.driver)
SELECT txid FROM d;

-- name: rest
-- The owner is read under its lock: a driver that was superseded meanwhile releases nothing.
WITH r AS MATERIALIZED (
    SELECT r.* FROM (SELECT * FROM unnest($1, $2, $3, $4, $5) AS r(txid, owner, by, why, stalled) ORDER BY txid) r
     CROSS JOIN LATERAL (SELECT FROM txsaga.tx WHERE tx.txid = r.txid AND tx.owner = r.owner OFFSET 0 FOR SHARE) t)
UPDATE txsaga.saga SET until = clock_timestamp() + r.by * interval '1 second', driver = NULL, why = nullif(r.why, ''),
       stalled = r.stalled
  FROM r WHERE saga.txid = r.txid RETURNING saga.txid, r.owner;

-- name: close
DELETE FROM txsaga.saga USING unnest($1, $2) AS c(txid, owner) JOIN txsaga.tx t ON t.txid = c.txid AND t.owner = c.owner
 WHERE saga.txid = c.txid AND NOT EXISTS (
       SELECT FROM txsaga.step n WHERE n.txid = t.txid AND n.kind IS NOT NULL AND CASE t.state
             WHEN 'rolled_back' THEN n.action IS NULL AND n.state NOT IN ('compensated', 'skipped')
             WHEN 'committed' THEN n.action IS NOT NULL AND n.state = 'started' ELSE true END)
RETURNING saga.txid, c.owner;

-- name: of
SELECT {columns} FROM txsaga.step WHERE txid = :txid AND kind IS NOT NULL ORDER BY number;

-- name: of_all
SELECT {columns} FROM txsaga.step WHERE txid = ANY (:txids) AND kind IS NOT NULL ORDER BY txid, number;

-- name: claim
-- The clock is read once; locked rows are in work right now. Of a committed flow nothing is left to do: its owner may
-- still be finishing its branches, and must not find itself superseded.
WITH lost AS MATERIALIZED (
    SELECT g.txid FROM txsaga.saga g JOIN txsaga.tx ON tx.txid = g.txid
     WHERE NOT g.stalled AND (CAST(:txid AS int8) IS NULL OR g.txid = :txid)
       AND CASE WHEN tx.state = 'active' THEN
               (tx.run IS NULL AND tx.lease IS NULL AND g.until <= (SELECT clock_timestamp()))
               OR EXISTS (SELECT FROM txsaga.step n WHERE n.txid = tx.txid AND n.due <= (SELECT clock_timestamp()))
           ELSE tx.state IN ('committed', 'rolled_back') AND g.until <= (SELECT clock_timestamp()) END
     ORDER BY g.txid LIMIT :limit FOR UPDATE OF g, tx SKIP LOCKED),
 m AS (UPDATE txsaga.tx SET touched = clock_timestamp(),
              owner = owner + (tx.lease IS NULL OR tx.state <> 'committed')::int
         FROM lost WHERE tx.txid = lost.txid
    RETURNING tx.txid, tx.pgroup, tx.owner, tx.state, tx.key),
 g AS (UPDATE txsaga.saga SET until = clock_timestamp() + :lease * (2 + random()) / 3 * interval '1 second',
              driver = :driver
         FROM lost WHERE saga.txid = lost.txid),
 c AS (UPDATE txsaga.step SET state = 'compensating', at = clock_timestamp() FROM m
        WHERE step.txid = m.txid AND m.state = 'rolled_back' AND step.state IN ('done', 'failed', 'started')
          AND step.action IS NULL AND step.kind IS NOT NULL)
SELECT txid, pgroup, owner, CASE state WHEN 'committed' THEN 1
       WHEN 'rolled_back' THEN 2 END, key FROM m ORDER BY txid;

-- name: hold
-- A lease ends between two thirds of it and all of it: the sagas of one process must not all expire at once.
UPDATE txsaga.saga SET until = clock_timestamp() + :lease * (2 + random()) / 3 * interval '1 second'
  FROM unnest(CAST(:txids AS int8[]), CAST(:owners AS int4[])) AS h(txid, owner)
  JOIN txsaga.tx t ON t.txid = h.txid AND t.owner = h.owner
 WHERE saga.txid = h.txid AND (saga.driver IS NOT NULL OR t.state = 'active');

-- name: listed
SELECT g.txid, p.name, t.key, CASE t.state WHEN 'committed' THEN 1 WHEN 'rolled_back' THEN 2 END,
       (SELECT count(*) FROM txsaga.step n WHERE n.txid = t.txid AND n.kind IS NOT NULL),
       (SELECT count(*) FROM (
           SELECT FROM txsaga.step n WHERE n.txid = t.txid AND n.kind IS NOT NULL AND CASE t.state
             WHEN 'rolled_back' THEN n.action IS NULL AND n.state NOT IN ('compensated', 'skipped')
             WHEN 'committed' THEN n.action IS NOT NULL AND n.state = 'started' ELSE true END) x),
       g.driver, g.until, g.stalled, coalesce(g.why, '')
  FROM txsaga.saga g JOIN txsaga.tx t ON t.txid = g.txid JOIN txsaga.producer_group p ON p.id = t.pgroup
 WHERE CAST(:txid AS int8) IS NULL OR g.txid = :txid ORDER BY g.txid LIMIT :limit;

-- name: counted
SELECT count(*) FILTER (WHERE t.state NOT IN ('committed', 'rolled_back')),
       count(*) FILTER (WHERE t.state IN ('committed', 'rolled_back') AND NOT g.stalled
                          AND g.why IS NULL),
       count(*) FILTER (WHERE NOT g.stalled AND g.why IS NOT NULL), count(*) FILTER (WHERE g.stalled)
  FROM txsaga.saga g JOIN txsaga.tx t ON t.txid = g.txid;

-- name: uncompensated
-- By hand, in the transaction that records who did it and why.
SELECT EXISTS (SELECT FROM txsaga.saga WHERE txid = :txid);

-- name: move
UPDATE txsaga.step SET state = :target, tries = 0, error = coalesce(nullif(:why, ''), error), at = clock_timestamp()
 WHERE txid = :txid AND number = :number AND kind IS NOT NULL AND state = ANY (:sources);

-- name: wake
UPDATE txsaga.saga SET until = clock_timestamp(), stalled = false, why = NULL WHERE txid = :txid;
