-- name: begin
INSERT INTO txsaga.reservation (gid, txid, resource, state, arguments)
VALUES (:gid, :txid, :resource, :state, CAST(:arguments AS jsonb))
ON CONFLICT DO NOTHING;

-- name: hold
UPDATE txsaga.reservation SET state = 'held', tried = true WHERE gid = :gid AND state IN ('held', 'open');

-- name: close
UPDATE txsaga.reservation SET state = 'cancelling' WHERE gid = :gid AND state IN ('held', 'open');

-- name: settle
UPDATE txsaga.reservation SET state = :target,
arguments = arguments || jsonb_build_object('txsaga-settled', extract(epoch FROM clock_timestamp()))
WHERE gid = :gid AND state = :source;

-- name: find
SELECT state, tried, arguments - 'txsaga-settled' AS arguments,
extract(epoch FROM clock_timestamp()) - CAST(arguments ->> 'txsaga-settled' AS double precision) AS settled
FROM txsaga.reservation WHERE gid = :gid;

-- name: waiting
SELECT gid FROM txsaga.reservation WHERE resource = :resource AND state IN ('held', 'cancelling');

-- name: drop
DELETE FROM txsaga.reservation WHERE gid = :gid;
