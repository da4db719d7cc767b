-- name: topics
SELECT t.id, t.name, t.type, array_agg(q.qid ORDER BY q.idx) AS qids, t.retention_seconds, t.retention_bytes
  FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id WHERE strpos(t.name, '~') = 0 GROUP BY t.id ORDER BY t.name;

-- name: topic
SELECT t.id, t.name, t.type, array_agg(q.qid ORDER BY q.idx) AS qids, t.retention_seconds, t.retention_bytes
  FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id WHERE t.name = :name GROUP BY t.id;

-- name: create
WITH t AS (INSERT INTO txsaga.topic (name, type, retention_seconds, retention_bytes)
    VALUES (:name, :type, :retention_seconds, :retention_bytes) RETURNING id)
INSERT INTO txsaga.queue (topic, idx) SELECT t.id, n FROM t, generate_series(0, :queues - 1) n ORDER BY n;

-- name: retain
UPDATE txsaga.topic SET retention_seconds = :retention_seconds, retention_bytes = :retention_bytes WHERE id = :id;

-- name: one_by_one
SELECT pg_advisory_xact_lock(hashtext('txsaga topic'));

-- name: needed
-- What a topic is needed for. Undecided transactions are on the list of doubts (those that are parked, too), scheduled,
-- open, or so new that the sweep has not seen their halves. What has no offset yet counts as stored. Decisions and
-- halves are looked up one by one: a join would read all that is kept.
WITH q AS MATERIALIZED (
    SELECT array_agg(qid) AS ids, sum(head - tail + (reached IS NOT NULL)::int4)::int8 AS stored
      FROM txsaga.queue WHERE topic = :id),
 u AS MATERIALIZED (
    SELECT txid FROM txsaga.doubt UNION SELECT txid FROM txsaga.scheduled
     UNION SELECT txid FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')),
 h AS (
    SELECT u.txid FROM u CROSS JOIN LATERAL (
        SELECT FROM txsaga.half h WHERE h.txid = u.txid AND h.qid = ANY ((SELECT ids FROM q)::int4[]) LIMIT 1) h
     UNION ALL
    SELECT u.txid FROM u JOIN txsaga.effect e ON e.txid = u.txid AND e.kind = 'late'
     WHERE CAST(e.payload ->> 'qid' AS int4) = ANY ((SELECT ids FROM q)::int4[])
     UNION ALL
    SELECT h.txid FROM txsaga.half h WHERE h.qid = ANY ((SELECT ids FROM q)::int4[])
       AND h.txid > (SELECT CASE WHEN count(*) = 2 THEN min(txid) ELSE 0 END
                       FROM txsaga.checkpoint WHERE name IN ('sweep', 'second look'))),
 s AS MATERIALIZED (SELECT snap FROM txsaga.tick ORDER BY id DESC LIMIT 1),
 o AS MATERIALIZED (
    SELECT txid FROM txsaga.op WHERE decision = 1 AND xid >= (SELECT pg_snapshot_xmax(snap) FROM s)
     UNION ALL
    SELECT txid FROM txsaga.op WHERE decision = 1 AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(snap) FROM s))),
 n AS (
    SELECT sum(h.n)::int8 AS stored FROM o CROSS JOIN LATERAL (
        SELECT n FROM txsaga.half WHERE half.txid = o.txid AND half.qid = ANY ((SELECT ids FROM q)::int4[]) OFFSET 0) h)
SELECT (SELECT string_agg(DISTINCT 'group ' || grp, ', ') FROM txsaga.cursor WHERE qid = ANY (q.ids)) AS readers,
       (SELECT nullif(count(*), 0) FROM txsaga.dead_letter WHERE qid = ANY (q.ids)) AS letters,
       (SELECT string_agg('group ' || name, ', ' ORDER BY name) FROM txsaga.consumer_group
         WHERE backout = :name) AS backed_out_by,
       (SELECT min(txid) FROM h
         WHERE (SELECT o.decision FROM txsaga.op o WHERE o.txid = h.txid) IS NULL) AS undecided,
       q.stored + coalesce((SELECT stored FROM n), 0) AS stored
  FROM q;

-- name: bounded
SET LOCAL statement_timeout = '5s';

-- name: delete
SELECT txsaga.delete_topic(:id);

-- name: store
SELECT rejecting, cluster FROM txsaga.store;

-- name: reject
UPDATE txsaga.store SET rejecting = :rejecting;

-- name: join_cluster
UPDATE txsaga.store SET cluster = :cluster;

-- name: register_group
-- A group belongs to its login, but the owner's groups are open to every producer.
INSERT INTO txsaga.producer_group (name, transactional, role)
VALUES (:name, :transactional, CASE WHEN :owner THEN NULL ELSE session_user END)
ON CONFLICT (name) DO NOTHING;

-- name: group
SELECT id, name, transactional, checks FROM txsaga.producer_group WHERE name = :name;

-- name: group_by_id
SELECT id, name, transactional, checks FROM txsaga.producer_group WHERE id = :id;

-- name: groups
SELECT id, name, transactional, checks FROM txsaga.producer_group ORDER BY name;

-- name: alter_checks
UPDATE txsaga.producer_group SET checks = jsonb_strip_nulls(checks || CAST(:changes AS jsonb)) WHERE name = :name
RETURNING id, name, transactional, checks;

-- name: alter_kind
UPDATE txsaga.producer_group SET transactional = :transactional WHERE name = :name
RETURNING id, name, transactional, checks;

-- name: group_needed
-- What needs a producer group as it is, and what to do.
SELECT coalesce(
    (SELECT 'has transaction ' || min(b.txid) || ', which is undecided; wait, or settle it with `txsaga tx settle '
            || min(b.txid) || '`' FROM ({statement inspect/overview.undecided_ones}) b WHERE b.pgroup = :id),
    (SELECT 'has member ' || min(name) || ', which answers its checks; stop it, wait 15 s' FROM txsaga.lease
      WHERE kind = 'checker:' || :id AND until > clock_timestamp()));

-- name: register_resource
INSERT INTO txsaga.resource (name, database) VALUES (:name, :database) ON CONFLICT DO NOTHING;

-- name: resource
SELECT id, name, database, enlisted FROM txsaga.resource WHERE name = :name AND database = :database;

-- name: resource_by_id
SELECT id, name, database, enlisted FROM txsaga.resource WHERE id = :id;

-- name: enlist
UPDATE txsaga.resource SET enlisted = true WHERE id = :id AND NOT enlisted;

-- name: enlisted
SELECT id, name, database, enlisted FROM txsaga.resource WHERE enlisted ORDER BY id;
