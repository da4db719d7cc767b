-- name: begin
-- Only a begin with a ticket has steps, and is a saga. Its lease ends between two thirds of it and all of it: the sagas
-- of one process must not all expire at once.
WITH x AS MATERIALIZED (
    SELECT nextval('txsaga.tx_seq') AS txid, r.*
      FROM unnest($1, $2, $3) WITH ORDINALITY AS r(pgroup, run, ticket, ord)
     CROSS JOIN txsaga.store WHERE NOT store.rejecting),
 t AS (INSERT INTO txsaga.tx (txid, pgroup, epoch, state, run)
    SELECT txid, pgroup, 1, 'active', nullif(run, '') FROM x),
 b AS (INSERT INTO txsaga.branch (txid, number, attempt, resource, state)
    SELECT x.txid, n.number, 1, n.resource, 'active'
      FROM x JOIN unnest($4, $5, $6) AS n(ord, number, resource) ON n.ord = x.ord),
 g AS (INSERT INTO txsaga.saga (txid, ticket, until)
    SELECT txid, ticket, clock_timestamp() + {lease} * (2 + random()) / 3 * interval '1 second'
      FROM x WHERE ticket <> 0),
 n AS (INSERT INTO txsaga.step
           (txid, number, name, attempt, state, hold, kind, resource, input, compensation, action, due, "left")
    SELECT x.txid, r.number, r.name, 1, 'started', 'commit', r.kind, nullif(r.resource, ''), r.input::jsonb,
           nullif(r.compensation, '')::jsonb, nullif(r.action, '')::jsonb,
           CASE WHEN r.expires >= 0 THEN clock_timestamp() + r.expires * interval '1 second' END, 'unknown'
      FROM x JOIN unnest($7, $8, $9, $10, $11, $12, $13, $14, $15)
           AS r(ord, number, name, kind, resource, input, compensation, action, expires) ON r.ord = x.ord)
SELECT x.ord, x.txid, {token} FROM x;

-- name: begun
-- Finds a begin whose answer was lost, so that it is never done twice.
SELECT r.ord, g.txid, {token} FROM unnest($1, $2) WITH ORDINALITY AS r(pgroup, ticket, ord)
  JOIN txsaga.saga g ON g.ticket = r.ticket JOIN txsaga.tx ON tx.txid = g.txid AND tx.pgroup = r.pgroup;

-- name: lock
-- A statement of its own: only the next statement sees what was bound under the lock before.
SELECT txid FROM txsaga.tx WHERE txid = ANY ($1) ORDER BY txid FOR UPDATE;

-- name: resolve
-- Each row that the upsert changes is looked up (`k`): a plan from a store's early days may join by reading the whole
-- table. A row deleted meanwhile would come back: only branches that are over are deleted, and those are not changed.
-- A branch that the decision names as committed is over: only a read-only one is.
WITH r AS MATERIALIZED (
    SELECT DISTINCT ON (r.txid) r.*, k.pgroup, k.epoch
      FROM unnest($1, $2, $3, $4, $5, $6) AS r(txid, owner, decision, who, why, evidence)
     CROSS JOIN LATERAL (SELECT pgroup, epoch FROM txsaga.tx k WHERE k.txid = r.txid AND k.owner = r.owner OFFSET 0) k),
 u AS (INSERT INTO txsaga.tx (txid, pgroup, epoch, owner, evidence, state)
    SELECT txid, pgroup, epoch, owner, nullif(evidence, 0),
           CASE decision WHEN 1 THEN 'committed' WHEN 2 THEN 'rolled_back' ELSE 'sealed' END
      FROM r
        ON CONFLICT (txid) DO UPDATE
       SET touched = clock_timestamp(), evidence = coalesce(excluded.evidence, tx.evidence), state = excluded.state
     WHERE tx.owner = excluded.owner
       AND (tx.state = 'active' OR (tx.state = 'sealed' AND excluded.state <> 'sealed'))
       AND (excluded.state = 'sealed' OR coalesce(
            (SELECT b.txid FROM txsaga.ballot b WHERE b.txid = excluded.txid LIMIT 1),
            (SELECT e.txid FROM txsaga.effect e WHERE e.txid = excluded.txid LIMIT 1),
            (SELECT i.txid FROM txsaga.intent i WHERE i.txid = excluded.txid LIMIT 1),
            (SELECT c.txid FROM txsaga.claim c WHERE c.txid = excluded.txid LIMIT 1)) IS NULL)
    RETURNING tx.txid, tx.pgroup, tx.owner),
 m AS (SELECT u.*, r.decision, r.who, r.why FROM u JOIN r USING (txid)),
 h AS (INSERT INTO txsaga.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
    SELECT m.txid, m.pgroup, h.qid, 1, m.owner, h.chunk, h.n, true, h.body
      FROM unnest($7, $8, $9, $10, $11) AS h(txid, qid, chunk, n, body) JOIN m ON m.txid = h.txid),
 p AS (INSERT INTO txsaga.part (txid, part, attempt)
    SELECT m.txid, 1, m.owner FROM m
     WHERE m.txid = ANY ($7) OR EXISTS (SELECT FROM txsaga.part o WHERE o.txid = m.txid AND o.part = 1)
        ON CONFLICT (txid, part) DO UPDATE SET attempt = excluded.attempt),
 v AS (INSERT INTO txsaga.branch (txid, number, attempt, resource, state, why)
    SELECT n.txid, n.number, n.attempt, k.resource, n.state,
           CASE n.state WHEN 'committed' THEN 'nothing was done in it' END
      FROM (SELECT DISTINCT ON (txid, number, attempt) *
              FROM unnest($12, $13, $14, $15) AS n(txid, number, attempt, state)) n JOIN m USING (txid)
     CROSS JOIN LATERAL (SELECT resource FROM txsaga.branch k
       WHERE k.txid = n.txid AND k.number = n.number AND k.attempt = n.attempt
         AND k.state IN ('active', 'ended', 'prepared') OFFSET 0) k
        ON CONFLICT (txid, number, attempt) DO UPDATE
       SET state = excluded.state, why = excluded.why, at = clock_timestamp()
     WHERE branch.state IN ('active', 'ended', 'prepared')),
 decided AS (SELECT txid, decision, true AS keyed, false AS from_check FROM m WHERE decision <> 0),
 o AS ({statement store/decision.write}),
 e AS (INSERT INTO txsaga.event (txid, what, who, why)
    SELECT txid, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, who, why FROM m WHERE decision <> 0),
 gone AS (DELETE FROM txsaga.doubt WHERE txid IN (SELECT txid FROM m) RETURNING txid, remarks),
 k AS (INSERT INTO txsaga.event (txid, at, what, who, why)
    SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
      FROM gone, jsonb_array_elements(gone.remarks) AS r)
SELECT txid FROM m;

-- name: standing
-- Why an owner's request changed nothing: the final decision, or the transaction's current owner.
SELECT tx.txid, o.decision, tx.owner, tx.state, tx.pgroup FROM txsaga.tx LEFT JOIN txsaga.op o ON o.txid = tx.txid
 WHERE tx.txid = ANY ($1);

-- name: note
-- Rows are looked up as in `resolve`. What a note does not change must not be locked: its holder may delete it.
INSERT INTO txsaga.branch AS b (txid, number, attempt, resource, state, why)
SELECT DISTINCT ON (n.txid, n.number, n.attempt)
       n.txid, n.number, n.attempt, k.resource, n.state, nullif(n.why, '')
  FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n(txid, number, attempt, state, why, ord)
 CROSS JOIN LATERAL (SELECT resource FROM txsaga.branch k
       WHERE k.txid = n.txid AND k.number = n.number AND k.attempt = n.attempt
         AND CASE n.state WHEN 'committed' THEN k.state = 'prepared' OR (k.aux AND k.state = 'active')
             WHEN 'forgotten' THEN k.state LIKE 'heuristic%' ELSE k.state IN ('active', 'ended', 'prepared') END
         AND (k.aux OR k.decision IS NOT NULL
              OR (SELECT o.txid FROM txsaga.op o WHERE o.txid = n.txid) IS NOT NULL) OFFSET 0) k
 ORDER BY n.txid, n.number, n.attempt, n.ord
    ON CONFLICT (txid, number, attempt) DO UPDATE SET state = excluded.state, why = excluded.why, at = clock_timestamp()
 WHERE CASE excluded.state WHEN 'committed' THEN b.state = 'prepared' OR (b.aux AND b.state = 'active')
       WHEN 'forgotten' THEN b.state LIKE 'heuristic%' ELSE b.state IN ('active', 'ended', 'prepared') END
   AND (b.aux OR b.decision IS NOT NULL
        OR (SELECT o.txid FROM txsaga.op o WHERE o.txid = excluded.txid) IS NOT NULL)
RETURNING b.txid, b.number, b.attempt;

-- name: of
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux
  FROM txsaga.branch b JOIN txsaga.resource r ON r.id = b.resource WHERE b.txid = :txid ORDER BY b.number, b.attempt;

-- name: written
SELECT t.txid, t.owner, o.decision FROM unnest(CAST(:txids AS int8[])) AS n(txid) JOIN txsaga.tx t ON t.txid = n.txid
  LEFT JOIN txsaga.op o ON o.txid = t.txid;

-- name: written_branches
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux
  FROM txsaga.branch b JOIN txsaga.resource r ON r.id = b.resource
 WHERE b.txid = ANY (CAST(:txids AS int8[])) ORDER BY b.txid, b.number, b.attempt;

-- name: over
SELECT b.txid, b.number, b.attempt FROM txsaga.branch b
  JOIN unnest(CAST(:txids AS int8[]), CAST(:numbers AS int4[]), CAST(:attempts AS int4[])) AS p(txid, number, attempt)
    ON b.txid = p.txid AND b.number = p.number AND b.attempt = p.attempt
 WHERE b.state IN ('committed', 'forgotten', 'rolled_back');

-- name: listed
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux
  FROM txsaga.branch b JOIN txsaga.resource r ON r.id = b.resource
 WHERE b.state = ANY (:states) AND (CAST(:resource AS text) IS NULL OR r.name = :resource)
   AND (b.txid, b.number, b.attempt) > (:txid, :number, :attempt)
 ORDER BY b.txid, b.number, b.attempt LIMIT :limit;

-- name: unfinished
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux,
       coalesce(b.decision, o.decision)
  FROM txsaga.branch b JOIN txsaga.resource r ON r.id = b.resource LEFT JOIN txsaga.op o ON o.txid = b.txid
 WHERE b.state NOT IN ('committed', 'rolled_back', 'forgotten') AND b.state IN ('active', 'ended', 'prepared')
   AND (b.txid, b.number, b.attempt) > (:txid, :number, :attempt) AND coalesce(b.decision, o.decision) IS NOT NULL
   AND b.at <= clock_timestamp() - CAST(:older AS interval)
 ORDER BY b.txid, b.number, b.attempt LIMIT :limit;

-- name: backlog
SELECT r.name,
       count(*) FILTER (WHERE b.state IN ('active', 'ended', 'prepared') AND coalesce(b.decision, o.decision) IS NULL),
       count(*) FILTER (WHERE b.state IN ('active', 'ended', 'prepared')
                        AND coalesce(b.decision, o.decision) IS NOT NULL),
       max(clock_timestamp() - b.at)
           FILTER (WHERE b.state IN ('active', 'ended', 'prepared') AND coalesce(b.decision, o.decision) IS NOT NULL),
       count(*) FILTER (WHERE b.state NOT IN ('active', 'ended', 'prepared'))
  FROM txsaga.resource r LEFT JOIN txsaga.branch b ON b.resource = r.id
        AND b.state NOT IN ('committed', 'rolled_back', 'forgotten')
  LEFT JOIN txsaga.op o ON o.txid = b.txid
 WHERE r.enlisted GROUP BY r.name ORDER BY r.name;

-- name: guests
SELECT txid, key, coordinator, state FROM txsaga.tx
 WHERE coordinator IS NOT NULL AND coordinator = coalesce(CAST(:coordinator AS uuid), coordinator) AND txid > :after
   AND state IN ('prepared', 'committed', 'rolled_back')
 ORDER BY txid LIMIT :limit;

-- name: named
SELECT resource, number, attempt, aux FROM txsaga.branch WHERE txid = :txid;

-- name: name
INSERT INTO txsaga.branch (txid, number, attempt, resource, state, aux)
VALUES (:txid, :number, :attempt, :resource, 'active', :aux);

-- name: vote
UPDATE txsaga.branch SET state = :state, why = :why
 WHERE txid = :txid AND number = :number AND attempt = :attempt AND state = ANY (:open);

-- name: forget
UPDATE txsaga.branch SET state = 'forgotten', at = clock_timestamp()
 WHERE txid = :txid AND number = :number AND attempt = :attempt AND state = ANY (:standing);
