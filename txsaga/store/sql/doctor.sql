-- name: dispatched
-- Readers see the message, so it was committed. Without a half row it never was a message, or its body is gone.
-- Row security hides rows of other groups from a producer: they are not missing.
SELECT l.txid, l.qid, l.base, (SELECT keyed FROM txsaga.half h WHERE h.txid = l.txid LIMIT 1), o.decision
  FROM (SELECT qid, head, (SELECT count(*) FROM txsaga.queue) AS queues FROM txsaga.queue) q
 CROSS JOIN LATERAL (
    SELECT txid, qid, base FROM txsaga.log
     WHERE log.qid = q.qid AND log.base < q.head AND log.base >= q.head - :recent / q.queues) l
  LEFT JOIN txsaga.op o ON o.txid = l.txid
 WHERE o.decision IS DISTINCT FROM 1 AND (NOT row_security_active('txsaga.tx') OR txsaga.everywhere())
 ORDER BY l.txid, l.qid, l.base LIMIT 1000;

-- name: unowned
-- As above, what row security hides is not missing.
SELECT o.txid, o.decision, (SELECT pgroup FROM txsaga.half h WHERE h.txid = o.txid LIMIT 1)
  FROM txsaga.op o WHERE o.keyed AND o.txid > (SELECT last_value - :recent FROM txsaga.tx_seq)
   AND (NOT row_security_active('txsaga.tx') OR txsaga.everywhere())
   AND NOT EXISTS (SELECT FROM txsaga.tx t WHERE t.txid = o.txid)
 ORDER BY o.txid LIMIT 1000;

-- name: settings
SELECT name, setting, source FROM pg_settings WHERE name = ANY (:names);

-- name: folder_here
SELECT setting FROM pg_settings
 WHERE name = 'data_directory' AND coalesce(inet_server_addr() << inet '127.0.0.0/8', true);

-- name: holders
SELECT 'session ' || pid || ' (' || coalesce(nullif(application_name, ''), usename, '?') || ')',
       clock_timestamp() - xact_start AS age
  FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start < clock_timestamp() - :long * interval '1 second'
   AND pid <> pg_backend_pid()
UNION ALL
SELECT 'prepared transaction ' || gid, clock_timestamp() - prepared
  FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - :long * interval '1 second'
 ORDER BY 2 DESC;

-- name: nobodys
-- A role created later under that name gets the group as well.
SELECT name || ' of ' || role FROM txsaga.producer_group
 WHERE role <> ALL (ARRAY(SELECT rolname::text FROM pg_roles)) ORDER BY name;

-- name: blanket
-- No right is a grant on the table: all tables were granted at once.
SELECT DISTINCT coalesce(r.rolname::text, 'PUBLIC') AS role
  FROM pg_class c, aclexplode(c.relacl) x LEFT JOIN pg_roles r ON r.oid = x.grantee
 WHERE c.oid = to_regclass(:sign) AND x.grantee <> c.relowner ORDER BY role;

-- name: who
SELECT quote_ident(session_user);

-- name: missing
SELECT name, word FROM unnest(CAST(:names AS text[]), CAST(:words AS text[])) AS x (name, word)
 WHERE NOT coalesce(CASE word WHEN 'EXECUTE' THEN has_function_privilege(to_regprocedure(name), word)
                              WHEN 'USAGE' THEN has_sequence_privilege(to_regclass(name), word)
                              WHEN 'DELETE' THEN has_table_privilege(to_regclass(name), word)
                              ELSE has_any_column_privilege(to_regclass(name), word) END, false)
 ORDER BY 1, 2;
