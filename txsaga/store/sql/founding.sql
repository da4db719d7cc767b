-- name: enter
SELECT v.version_num, s.uuid, s.incarnation, s.births, pg_has_role(t.relowner, 'USAGE'), ARRAY(
         SELECT r FROM unnest(%(rights)s::text[]) r WHERE has_column_privilege(t.oid, r, 'REFERENCES'))
  FROM txsaga.alembic_version v, txsaga.store s, pg_class t, ({server}) AS here (system, timeline, place)
 WHERE t.oid = to_regclass(%(sign)s) AND {home} AND current_setting('server_version_num')::int >= {oldest};

-- name: server
SELECT (SELECT system_identifier FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT d.oid || '/' || n.oid FROM pg_database d, pg_namespace n
         WHERE d.datname = current_database() AND n.nspname = '{namespace}');

-- name: at_home
-- The store of a connection, and whether it is in its own place.
SELECT s.uuid, s.incarnation, {home}
  FROM "{namespace}".store s, ({server}) AS here (system, timeline, place);

-- name: end_others
-- Sessions of the previous incarnation would continue under its id: their evidence would look like ours.
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = '{name}' AND pid <> pg_backend_pid();

-- name: newest
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM txsaga.tx_seq;

-- name: reset_xids
-- After a restore the stored xids mean nothing. All decisions count as seen, except those missing in the log.
UPDATE txsaga.op SET xid = '3';

-- name: missed
WITH b AS (
    SELECT h.qid, h.txid, h.part, h.attempt, h.chunk, h.n,
           sum(h.n) OVER (PARTITION BY h.qid ORDER BY h.txid, h.part, h.attempt, h.chunk) - h.n AS rel,
           sum(h.n) OVER (PARTITION BY h.qid) AS total
      FROM txsaga.op o JOIN txsaga.half h ON h.txid = o.txid
     WHERE o.decision = 1
       AND NOT EXISTS (SELECT FROM txsaga.log l WHERE l.qid = h.qid AND l.txid = h.txid)
       AND (NOT o.keyed OR EXISTS (SELECT FROM txsaga.part p
            WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt))),
 q AS (
    UPDATE txsaga.queue SET head = head + t.total FROM (SELECT DISTINCT qid, total FROM b) t
     WHERE t.qid = queue.qid RETURNING queue.qid, queue.head - t.total AS base)
INSERT INTO txsaga.log (qid, base, n, txid, part, attempt, chunk)
SELECT b.qid, q.base + b.rel, b.n, b.txid, b.part, b.attempt, b.chunk FROM b JOIN q USING (qid);

-- name: unblock
-- `missed` adds what these queues lack.
UPDATE txsaga.queue SET reached = NULL WHERE reached IS NOT NULL;

-- name: rebase
INSERT INTO txsaga.tick (id, snap, last_txid)
SELECT max(id) + 1, pg_current_snapshot(), max(last_txid) FROM txsaga.tick;

-- name: known
-- What all may read of it: token keys are the owner's.
SELECT uuid, incarnation, births, system_identifier, timeline, place FROM txsaga.store;

-- name: found
INSERT INTO txsaga.store (uuid, incarnation, system_identifier, timeline, place, token_key, token_inner, token_outer)
VALUES (:uuid, 1, :system_identifier, :timeline, :place, :token_key, :token_inner, :token_outer);

-- name: first_tick
INSERT INTO txsaga.tick (id, snap, last_txid) VALUES (0, pg_current_snapshot(), 0);

-- name: locked
SELECT uuid, incarnation, births, token_key FROM txsaga.store FOR UPDATE;

-- name: adopt
UPDATE txsaga.store SET incarnation = :incarnation, births = CAST(:births AS int8[]), timeline = :timeline,
       place = :place, system_identifier = :system_identifier,
       token_key = :token_key, token_inner = :token_inner, token_outer = :token_outer;
