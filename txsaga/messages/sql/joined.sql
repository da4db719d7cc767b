-- name: send
-- In the function.
WITH h AS (INSERT INTO txsaga.half (txid, pgroup, qid, chunk, n, body)
           VALUES (nextval('txsaga.tx_seq'), {pgroup}, {qid}, 0, {n}, {body}) RETURNING txid),
 decided AS (SELECT txid, 1 AS decision, false AS keyed, false AS from_check FROM h)
{statement store/decision.write} RETURNING txid;

-- name: send_durably
-- The caller's COMMIT acknowledges the message, so it must be durable whatever the session's setting.
{statement send},
       CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
            THEN set_config('synchronous_commit', 'on', true) END;

-- name: call
-- The same, for a login that does not own the namespace.
SELECT txid, CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
                  THEN set_config('synchronous_commit', 'on', true) END
  FROM txsaga.send(CAST({pgroup} AS int4), {qid}, {n}, {body});

-- name: owner
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(:half);
