-- name: mark
-- In the order of kinds: otherwise two members could deadlock.
INSERT INTO txsaga.lease (kind, name, holder, until)
SELECT kind, :name, :name, clock_timestamp() + :ttl FROM unnest(CAST(:kinds AS text[])) kind
ON CONFLICT (kind, name) DO UPDATE SET until = excluded.until;

-- name: end_others
-- A locked lease is being renewed: waiting for it, two late members would deadlock.
DELETE FROM txsaga.lease WHERE (kind, name) IN (
    SELECT kind, name FROM txsaga.lease WHERE kind = ANY (:kinds) AND until <= clock_timestamp() - :slack
       FOR UPDATE SKIP LOCKED);

-- name: alive
SELECT kind, name FROM txsaga.lease WHERE kind = ANY (:kinds) AND until > clock_timestamp() ORDER BY name;

-- name: drop
DELETE FROM txsaga.lease WHERE kind = ANY (:kinds) AND name = :name;

-- name: acquire
-- A free lease, or one's own: it keeps its epoch while it lasts.
INSERT INTO txsaga.lease (kind, name, holder, until) VALUES (:kind, :name, :holder, clock_timestamp() + :ttl)
ON CONFLICT (kind, name) DO UPDATE SET holder = excluded.holder, until = excluded.until, epoch = lease.epoch
       + CASE WHEN lease.holder = excluded.holder AND lease.until > clock_timestamp() THEN 0 ELSE 1 END
 WHERE lease.holder = excluded.holder OR lease.until <= clock_timestamp()
RETURNING kind, name, holder, epoch;

-- name: release
UPDATE txsaga.lease SET until = clock_timestamp()
 WHERE kind = :kind AND name = :name AND holder = :holder AND epoch = :epoch;
