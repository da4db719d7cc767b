-- name: register
INSERT INTO txsaga.consumer_group
       (name, style, ordered, max_attempts, backout, dead_letters, first_retry, longest_retry, expires, paused)
VALUES (:name, :style, :ordered, :max_attempts, :backout, :dead_letters,
        :first_retry, :longest_retry, :expires, :paused)
ON CONFLICT DO NOTHING;

-- name: all
SELECT name, style, ordered, max_attempts, backout, dead_letters, first_retry, longest_retry, expires, paused
  FROM txsaga.consumer_group ORDER BY name;

-- name: find
SELECT name, style, ordered, max_attempts, backout, dead_letters, first_retry, longest_retry, expires, paused
  FROM txsaga.consumer_group WHERE name = :name;

-- name: alter
UPDATE txsaga.consumer_group SET {changes} WHERE name = :name
RETURNING name, style, ordered, max_attempts, backout, dead_letters, first_retry, longest_retry, expires, paused;

-- name: seen
UPDATE txsaga.consumer_group SET seen = clock_timestamp()
 WHERE name = ANY (:names) AND seen < clock_timestamp() - interval '1 minute';

-- name: left
-- The topic of queues that a group reads none of any more.
SELECT split_part(t.name, '~', 1) FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
 WHERE q.qid = ANY (:qids)
   AND NOT EXISTS (SELECT FROM txsaga.cursor c WHERE c.grp = :name AND c.qid = ANY (:qids)) LIMIT 1;

-- name: over
SELECT name FROM txsaga.consumer_group WHERE seen < clock_timestamp() - expires
 ORDER BY name FOR UPDATE SKIP LOCKED;

-- name: lock
SELECT name FROM txsaga.consumer_group WHERE name = :name FOR UPDATE;

-- name: still
-- Cursors are locked as decisions lock them, before the check: an intent that is written meanwhile is seen.
SELECT FROM txsaga.cursor WHERE grp = :name ORDER BY qid FOR UPDATE;

-- name: in_use
SELECT (EXISTS (SELECT FROM txsaga.intent WHERE grp = g.name)
    OR EXISTS (SELECT FROM txsaga.claim WHERE grp = g.name
                  AND (txid IS NOT NULL OR receipt IS NOT NULL AND until > clock_timestamp()))
    OR EXISTS (SELECT FROM txsaga.lease
                WHERE starts_with(kind, 'member:' || g.name || '/') AND until > clock_timestamp()))
  FROM txsaga.consumer_group g WHERE name = :name;

-- name: seen_at_work
-- A member that works on one message for long is alive: its group's idle time begins when it is done.
UPDATE txsaga.consumer_group g SET seen = clock_timestamp()
 WHERE expires IS NOT NULL AND seen < clock_timestamp() - interval '1 minute'
   AND (EXISTS (SELECT FROM txsaga.intent WHERE grp = g.name)
    OR EXISTS (SELECT FROM txsaga.claim WHERE grp = g.name
                  AND (txid IS NOT NULL OR receipt IS NOT NULL AND until > clock_timestamp()))
    OR EXISTS (SELECT FROM txsaga.lease
                WHERE starts_with(kind, 'member:' || g.name || '/') AND until > clock_timestamp()));

-- name: left_over
-- Cursors that a member created while its group was deleted: they would keep messages for ever.
DELETE FROM txsaga.cursor c WHERE NOT EXISTS (SELECT FROM txsaga.consumer_group g WHERE g.name = c.grp);

-- name: wanted
-- In its own statement: a group that expires at this moment is gone for the next one, or stays with its letters.
SELECT name FROM txsaga.consumer_group WHERE name IN (SELECT grp FROM txsaga.dead_letter WHERE id = ANY (:ids))
 ORDER BY name FOR UPDATE;

-- name: replay
-- A replayed letter is delivered as its message was, with its history; its attempts count from zero again. It stays if
-- its group does not read its queue any more: the cursor is locked, so that the group can't leave meanwhile.
WITH l AS MATERIALIZED (
    SELECT d.* FROM txsaga.dead_letter d JOIN txsaga.cursor c USING (grp, qid)
     WHERE d.id = ANY (:ids) AND d.grp = ANY (:names) FOR UPDATE OF d FOR KEY SHARE OF c),
 copies AS (
    INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, history, message, born, body)
    SELECT grp, qid, off, {copied}, 1, 0, clock_timestamp(), history, message, born, body FROM l
    ON CONFLICT DO NOTHING RETURNING grp, qid, base)
DELETE FROM txsaga.dead_letter d USING l, copies c WHERE d.id = l.id AND (l.grp, l.qid, l.off) = (c.grp, c.qid, c.base);

-- name: forget
WITH c AS (DELETE FROM txsaga.cursor WHERE grp = :name),
 l AS (DELETE FROM txsaga.lease WHERE starts_with(kind, 'member:' || :name || '/'))
DELETE FROM txsaga.consumer_group WHERE name = :name;

-- name: letters
SELECT d.id, d.grp AS "group", d.topic, q.idx AS queue, d.off AS "offset", d.at, d.attempts, d.cause, d.history,
       d.message, d.born, d.body
  FROM txsaga.dead_letter d JOIN txsaga.queue q USING (qid) WHERE {which} ORDER BY d.id DESC LIMIT :limit;

-- name: ids
SELECT id FROM txsaga.dead_letter WHERE grp = :grp AND id > :after ORDER BY id LIMIT :limit;

-- name: burn
DELETE FROM txsaga.dead_letter WHERE id = ANY (:ids);
