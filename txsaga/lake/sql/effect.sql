-- name: keep
INSERT INTO txsaga.effect (txid, seq, kind, payload)
SELECT :txid, greatest((SELECT max(seq) FROM txsaga.effect WHERE txid = :txid), CAST(:first AS int4)) + number,
       kind, CAST(payload AS jsonb)
  FROM unnest(CAST(:kinds AS varchar[]), CAST(:payloads AS text[])) WITH ORDINALITY AS e (kind, payload, number);

-- name: counting
-- Those of the attempts that won their parts.
SELECT e.kind, e.payload FROM txsaga.effect e
  JOIN txsaga.part p ON p.txid = e.txid AND p.part = CAST(e.payload ->> 'part' AS int4)
   AND p.attempt = CAST(e.payload ->> 'attempt' AS int4)
 WHERE e.txid = :txid AND e.seq > :first ORDER BY e.seq;

-- name: create_namespace
INSERT INTO txsaga.iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, 'exists', 'true') ON CONFLICT DO NOTHING;

-- name: create
INSERT INTO txsaga.iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :table, :new, 'TABLE') ON CONFLICT DO NOTHING;

-- name: drop
DELETE FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table AND metadata_location = :old;

-- name: is_view
SELECT EXISTS (SELECT FROM txsaga.iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace
                  AND table_name = :table AND iceberg_type = 'VIEW');

-- name: move
UPDATE txsaga.iceberg_tables SET metadata_location = :new, previous_metadata_location = :old
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table AND metadata_location = :old;

-- name: reserve
-- One transaction at a time checks a table: two that both see it free would both reserve it.
SELECT i.txid FROM txsaga.table_intent i
 WHERE i.catalog = :catalog AND i.namespace = :namespace AND i.name = :table AND i.txid <> :txid
   AND (i.part = ANY (:parts) OR i.part = '' OR '' = ANY (:parts))
   AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = i.txid)
 LIMIT 1;

-- name: take
INSERT INTO txsaga.table_intent (catalog, namespace, name, part, txid)
SELECT :catalog, :namespace, :table, part, :txid FROM unnest(CAST(:parts AS varchar[])) AS part
    ON CONFLICT (catalog, namespace, name, part) DO UPDATE SET txid = excluded.txid;

-- name: turn
SELECT pg_advisory_xact_lock(hashtextextended(:key, 0));

-- name: pointers
-- Not of views, which other engines may store in the same table.
SELECT catalog_name, table_namespace, table_name, metadata_location FROM txsaga.iceberg_tables
 WHERE coalesce(iceberg_type, 'TABLE') = 'TABLE'
   AND (catalog_name, table_namespace, table_name) IN (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]));
