-- name: audit
-- Of `window` records those of people, if only these are wanted.
SELECT id, txid, at, what, who, why, login
  FROM (SELECT * FROM txsaga.event WHERE id < :before ORDER BY id DESC LIMIT :window) e
 WHERE cast(:people AS text) IS NULL OR what ~ :people ORDER BY id DESC LIMIT :limit;

-- name: audit_from
-- The first of `window` records, if there may be earlier ones.
SELECT min(id) FROM (SELECT id FROM txsaga.event WHERE id < :before ORDER BY id DESC LIMIT :window) e
HAVING count(*) = :window;

-- name: letters
-- How many dead letters there are; a thousand are many.
SELECT count(*) FROM (SELECT FROM txsaga.dead_letter LIMIT 1000) d;

-- name: engines
-- Who leads the rounds of each role, or led the last one, and which processes answer or work.
SELECT kind, name, holder, until > clock_timestamp() AS alive, clock_timestamp() - until AS ago
  FROM txsaga.lease WHERE kind = 'round' OR kind = 'call' OR kind LIKE 'checker:%' ORDER BY kind, name;

-- name: mark
-- Differs from an earlier one if a transaction was begun, moved, decided or checked, a tick was made, a message became
-- a dead letter, a group was made or paused, or something was recorded.
SELECT concat_ws('/', (SELECT last_value FROM txsaga.tx_seq), (SELECT xid FROM txsaga.op ORDER BY xid DESC LIMIT 1),
                 (SELECT max(touched) FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')),
                 (SELECT concat(count(*), ' ', sum(checks), ' ', count(parked)) FROM txsaga.doubt),
                 (SELECT max(id) FROM txsaga.tick), (SELECT max(id) FROM txsaga.event),
                 (SELECT concat(min(id), ' ', max(id)) FROM txsaga.dead_letter), ({statement letters}),
                 (SELECT concat(count(*), ' ', count(*) FILTER (WHERE paused)) FROM txsaga.consumer_group));

-- name: states
SELECT coalesce(CASE WHEN b.parked IS NOT NULL THEN 'parked' ELSE t.state END, 'prepared'), count(*)
  FROM ({statement inspect/overview.undecided_ones}) b LEFT JOIN txsaga.tx t USING (txid) GROUP BY 1;

-- name: table_of
-- The name of the table of an effect, as the index has it.
coalesce(e.payload ->> 'target', coalesce((e.payload -> 'name' ->> -2) || '.', '') || (e.payload -> 'name' ->> -1));

-- name: tables
-- Each name is found from the one before, so that the index is not read as a whole; then who published to it last.
WITH RECURSIVE n AS (
    (SELECT {statement table_of} AS name FROM txsaga.effect e
      WHERE e.kind IN ('table', 'rows') AND {statement table_of} > :after ORDER BY 1 LIMIT 1)
    UNION ALL
    SELECT (SELECT {statement table_of} FROM txsaga.effect e
             WHERE e.kind IN ('table', 'rows') AND {statement table_of} > n.name ORDER BY 1 LIMIT 1)
      FROM n WHERE n.name IS NOT NULL)
SELECT n.name, l.kind, l.txid, l.at, l.key, l."group", l.snapshot, i.metadata_location AS pointer
  FROM (SELECT name FROM n WHERE name IS NOT NULL LIMIT :limit) n
  LEFT JOIN LATERAL (
    SELECT e.kind, e.txid, t.touched AS at, t.key, g.name AS "group", e.payload -> 'name' AS place,
           nullif(coalesce(e.payload ->> 'head', e.payload ->> 'snapshot'), '0') AS snapshot
      FROM txsaga.effect e JOIN txsaga.op o ON o.txid = e.txid AND o.decision = 1
      JOIN txsaga.part p ON p.txid = e.txid AND p.part = (e.payload ->> 'part')::int4
       AND p.attempt = (e.payload ->> 'attempt')::int4
      JOIN txsaga.tx t ON t.txid = e.txid JOIN txsaga.producer_group g ON g.id = t.pgroup
     WHERE e.kind IN ('table', 'rows') AND {statement table_of} = n.name
     ORDER BY e.txid DESC, e.seq DESC LIMIT 1) l ON true
  LEFT JOIN txsaga.iceberg_tables i ON (i.catalog_name, i.table_namespace, i.table_name)
       = (l.place ->> 0, l.place ->> 1, l.place ->> 2)
 ORDER BY n.name;

-- name: published
-- The last transactions that wrote to a table, published or not.
SELECT f.txid, t.key, g.name AS "group", t.run, t.touched AS at, o.decision,
       CASE WHEN o.decision IS NULL THEN t.state WHEN o.decision = 1 THEN 'committed' ELSE 'rolled_back' END AS state
  FROM (SELECT DISTINCT e.txid FROM txsaga.effect e
         WHERE e.kind IN ('table', 'rows') AND {statement table_of} = :name AND e.txid < :before
         ORDER BY e.txid DESC LIMIT :limit) f
  JOIN txsaga.tx t USING (txid) JOIN txsaga.producer_group g ON g.id = t.pgroup LEFT JOIN txsaga.op o USING (txid)
 ORDER BY f.txid DESC;

-- name: written
-- What transactions wrote to tables: only the attempts that won their parts count.
SELECT e.txid, {statement table_of} AS name, e.kind, e.payload ->> 'mode' AS mode, (e.payload ->> 'rows')::int8 AS rows,
       p.attempt IS NOT NULL AS counts, nullif(e.payload ->> 'snapshot', '0') AS snapshot,
       e.payload ->> 'head' AS head, i.metadata_location AS pointer
  FROM txsaga.effect e
  LEFT JOIN txsaga.part p ON p.txid = e.txid AND p.part = (e.payload ->> 'part')::int4
       AND p.attempt = (e.payload ->> 'attempt')::int4
  LEFT JOIN txsaga.iceberg_tables i ON (i.catalog_name, i.table_namespace, i.table_name)
       = (e.payload -> 'name' ->> 0, e.payload -> 'name' ->> 1, e.payload -> 'name' ->> 2)
 WHERE e.txid = ANY (:txids) AND e.kind IN ('table', 'rows') ORDER BY e.txid DESC, e.seq;

-- name: prepared
-- The oldest prepared branch of each resource.
SELECT DISTINCT ON (r.name) r.name, b.txid, clock_timestamp() - b.at AS age
  FROM txsaga.branch b JOIN txsaga.resource r ON r.id = b.resource
 WHERE b.state = 'prepared' AND b.state NOT IN ('committed', 'rolled_back', 'forgotten') ORDER BY r.name, b.at;

-- name: attended
-- A member of a work queue leaves a sign only while it holds a message; it marks its group as seen each minute.
SELECT CASE WHEN EXISTS (SELECT FROM txsaga.lease
                          WHERE starts_with(kind, 'member:' || g.name || '/') AND until > clock_timestamp())
              OR EXISTS (SELECT FROM txsaga.claim c WHERE c.grp = g.name AND c.until > clock_timestamp()
                            AND c.receipt IS NOT NULL AND c.txid IS NULL) THEN true
            WHEN g.style = 'work' AND g.seen > clock_timestamp() - interval '90 seconds' THEN NULL
            ELSE false END
  FROM txsaga.consumer_group g WHERE g.name = :group;

-- name: read_by
-- The groups that read some topics.
SELECT t.name AS topic, array_agg(DISTINCT c.grp ORDER BY c.grp) FILTER (WHERE c.grp IS NOT NULL) AS groups
  FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id LEFT JOIN txsaga.cursor c USING (qid)
 WHERE t.name = ANY (:topics) GROUP BY t.name ORDER BY t.name;

-- name: letters_of
-- Dead letters that a transaction's messages became, found by their offsets, in the groups that exist. OFFSET keeps
-- the plan from reading all letters in the order of their numbers.
SELECT d.id, d.grp AS "group"
  FROM unnest(cast(:topics AS text[]), cast(:queues AS int[]), cast(:firsts AS int8[]), cast(:lasts AS int8[]))
       AS p (topic, idx, first, last)
  JOIN txsaga.topic t ON t.name = p.topic JOIN txsaga.queue q ON q.topic = t.id AND q.idx = p.idx
 CROSS JOIN txsaga.consumer_group g
 CROSS JOIN LATERAL (SELECT id, grp FROM txsaga.dead_letter d
                      WHERE d.grp = g.name AND d.qid = q.qid AND d.off BETWEEN p.first AND p.last
                        AND starts_with(d.message, :id || '-') OFFSET 0) d
 ORDER BY d.id LIMIT 20;

-- name: messages
-- Of what a transaction would deliver (as for `contents`), the chunks with messages of a page.
SELECT t.name AS topic, h.body, c.first
  FROM (SELECT h.txid, h.part, h.attempt, h.qid, h.chunk, h.n,
               (sum(h.n) OVER (ORDER BY h.part, h.attempt, h.qid, h.chunk) - h.n)::int8 AS first
          FROM txsaga.half h WHERE h.txid = :txid AND (NOT h.keyed OR EXISTS (
               SELECT FROM txsaga.part p WHERE (p.txid, p.part, p.attempt) = (h.txid, h.part, h.attempt)))) c
  JOIN txsaga.half h USING (txid, part, attempt, qid, chunk)
  JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
 WHERE h.txid = :txid AND c.first + c.n > :after AND c.first < cast(:after AS int8) + :limit ORDER BY c.first;

-- name: answerers
-- A lease is renewed until its process ends, and runs out :lasts later.
SELECT l.name AS member, l.until > clock_timestamp() AS alive, l.until - cast(:lasts AS interval) AS seen,
       count(q.txid) AS questions, min(q.asked) AS since
  FROM txsaga.producer_group g JOIN txsaga.lease l ON l.kind = 'checker:' || g.id
  LEFT JOIN txsaga.question q ON q.pgroup = g.id AND q.member = l.name
 WHERE g.name = :group GROUP BY l.name, l.until ORDER BY l.name;

-- name: readers
-- A member of a stream has a lease on each topic and owns queues; one of a work queue is known while it holds messages.
WITH r AS (
    SELECT name AS member, substr(kind, length('member:' || :group || '/') + 1) AS topic, until,
           cast(NULL AS int4) AS queue, 0 AS held, cast(NULL AS int8) AS txid
      FROM txsaga.lease WHERE starts_with(kind, 'member:' || :group || '/')
    UNION ALL
    SELECT c.owner, t.name, NULL, q.idx, 0, NULL
      FROM txsaga.cursor c JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
     WHERE c.grp = :group AND c.owner IS NOT NULL
    UNION ALL
    SELECT i.member, t.name, NULL, NULL, i."end" - i.start, i.txid
      FROM txsaga.intent i JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic WHERE i.grp = :group
    UNION ALL
    SELECT c.member, t.name, CASE WHEN c.txid IS NULL THEN c.until END, NULL, bit_count(c.open::bit(64)), c.txid
      FROM txsaga.claim c JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic
     WHERE c.grp = :group AND c.member IS NOT NULL AND (c.receipt IS NOT NULL OR c.txid IS NOT NULL))
SELECT r.member, r.topic, coalesce(max(r.until) > clock_timestamp(), false) AS alive, max(r.until) AS until,
       coalesce(array_agg(r.queue ORDER BY r.queue) FILTER (WHERE r.queue IS NOT NULL), ARRAY[]::int4[]) AS queues,
       sum(r.held)::int8 AS held, min(tx.opened) AS since,
       coalesce(array_agg(DISTINCT r.txid) FILTER (WHERE r.txid IS NOT NULL), ARRAY[]::int8[]) AS txids
  FROM r LEFT JOIN txsaga.tx USING (txid) GROUP BY r.member, r.topic ORDER BY r.topic, r.member LIMIT 500;

-- name: seen
SELECT seen FROM txsaga.consumer_group WHERE name = :group;

-- name: check_now
-- A transaction without a result yet is held by its owner's heartbeat, and so is an open one: those wait. One that a
-- client is asked about is being checked.
UPDATE txsaga.doubt d SET check_at = clock_timestamp()
 WHERE txid = :txid AND parked IS NULL AND (checks > 0 OR remarks <> '[]')
   AND NOT EXISTS (SELECT FROM txsaga.question q WHERE q.txid = d.txid)
   AND NOT EXISTS (SELECT FROM txsaga.tx t WHERE t.txid = d.txid AND t.state = 'active');
