-- name: found
SELECT coalesce(iceberg_type, 'TABLE') AS kind, metadata_location FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table;

-- name: listed
SELECT table_name FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND coalesce(iceberg_type, 'TABLE') = :kind
   AND table_name > :after ORDER BY table_name LIMIT :most;

-- name: drop_view
DELETE FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table
   AND iceberg_type = 'VIEW';

-- name: rename_view
UPDATE txsaga.iceberg_tables SET table_namespace = :new_namespace, table_name = :new_table
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table
   AND iceberg_type = 'VIEW'
   AND NOT EXISTS (SELECT FROM txsaga.iceberg_tables WHERE catalog_name = :catalog
                      AND table_namespace = :new_namespace AND table_name = :new_table);

-- name: create_view
INSERT INTO txsaga.iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :table, :new, 'VIEW') ON CONFLICT DO NOTHING;

-- name: lock_view
SELECT metadata_location FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table
   AND iceberg_type = 'VIEW' FOR UPDATE;

-- name: move_view
UPDATE txsaga.iceberg_tables SET previous_metadata_location = metadata_location, metadata_location = :new
 WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table
   AND iceberg_type = 'VIEW';

-- name: namespaces
-- The namespaces below a parent; a namespace that holds others is one as well.
SELECT DISTINCT split_part(substr(name, length(:parent) + 1), '.', 1) AS level FROM (
    SELECT table_namespace AS name FROM txsaga.iceberg_tables WHERE catalog_name = :catalog
     UNION SELECT namespace FROM txsaga.iceberg_namespace_properties WHERE catalog_name = :catalog) n
 WHERE starts_with(name, :parent) AND split_part(substr(name, length(:parent) + 1), '.', 1) > :after
 ORDER BY level LIMIT :most;

-- name: has_namespace
SELECT EXISTS (SELECT FROM txsaga.iceberg_namespace_properties
                WHERE catalog_name = :catalog AND (namespace = :namespace OR starts_with(namespace, :namespace || '.')))
    OR EXISTS (SELECT FROM txsaga.iceberg_tables WHERE catalog_name = :catalog
                  AND (table_namespace = :namespace OR starts_with(table_namespace, :namespace || '.')));

-- name: holds
-- What a namespace holds: tables, views, other namespaces.
SELECT EXISTS (SELECT FROM txsaga.iceberg_namespace_properties
                WHERE catalog_name = :catalog AND starts_with(namespace, :namespace || '.'))
    OR EXISTS (SELECT FROM txsaga.iceberg_tables WHERE catalog_name = :catalog
                  AND (table_namespace = :namespace OR starts_with(table_namespace, :namespace || '.')));

-- name: lock
-- Changes of a namespace wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended('namespace/' || :catalog || '/' || :namespace, 0));

-- name: properties
SELECT property_key, property_value FROM txsaga.iceberg_namespace_properties
 WHERE catalog_name = :catalog AND namespace = :namespace;

-- name: set_property
INSERT INTO txsaga.iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, :key, :value)
    ON CONFLICT (catalog_name, namespace, property_key) DO UPDATE SET property_value = excluded.property_value;

-- name: remove_property
DELETE FROM txsaga.iceberg_namespace_properties
 WHERE catalog_name = :catalog AND namespace = :namespace AND property_key = :key;

-- name: drop_namespace
DELETE FROM txsaga.iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace;

-- name: staged
-- What a contribution of an open transaction changes in tables.
SELECT payload FROM txsaga.effect
 WHERE txid = :txid AND kind = 'table' AND (payload ->> 'part')::int4 = :part
   AND (payload ->> 'attempt')::int4 = :attempt ORDER BY seq;

-- name: keep_moment
INSERT INTO txsaga.moment (kind, name, tick, heads, tables, who, expires)
VALUES (:kind, :name, :tick, CAST(:heads AS jsonb), CAST(:tables AS jsonb), :who,
        now() + make_interval(secs => :lease))
    ON CONFLICT DO NOTHING;

-- name: moments
SELECT kind, name, tick, heads, tables, who, at, expires, state, asked, published FROM txsaga.moment
 WHERE kind = :kind AND (CAST(:name AS text) IS NULL OR name = :name) ORDER BY at, name;

-- name: mark_moment
UPDATE txsaga.moment SET state = :state, asked = :asked, published = CAST(:published AS jsonb)
 WHERE kind = :kind AND name = :name AND tick = :tick
   AND (state, asked) IS NOT DISTINCT FROM (CAST(:seen_state AS varchar), CAST(:seen_asked AS int8));

-- name: forget_moment
DELETE FROM txsaga.moment WHERE kind = :kind AND name = :name AND tick = :tick
   AND (state, asked) IS NOT DISTINCT FROM (CAST(:seen_state AS varchar), CAST(:seen_asked AS int8));

-- name: is_kept
SELECT EXISTS (SELECT FROM txsaga.moment
                WHERE kind = :kind AND name = :name AND (expires IS NULL OR expires > now()));

-- name: holds_others
-- Is a place in the folder of another table or view, or the other way round?
SELECT EXISTS (SELECT FROM txsaga.iceberg_tables, regexp_replace(metadata_location, '^(file:)?/+', 'file:///') AS at
                WHERE (starts_with(at, :place) OR starts_with(:place, regexp_replace(at, '/metadata/[^/]*$', '/')))
                  AND (catalog_name, table_namespace, table_name) <> (:catalog, :namespace, :table));

-- name: cuts_of
-- The cuts that still keep a table.
SELECT name FROM txsaga.moment m WHERE kind = 'cut' AND (expires IS NULL OR expires > now())
   AND EXISTS (SELECT FROM jsonb_each(m.tables) t WHERE t.value ->> 'uuid' = :uuid) ORDER BY name;

-- name: tables
SELECT table_namespace, table_name FROM txsaga.iceberg_tables
 WHERE catalog_name = :catalog AND coalesce(iceberg_type, 'TABLE') = 'TABLE' ORDER BY table_namespace, table_name;

-- name: acted
SELECT found[1] FROM txsaga.event, regexp_match(why, '\(request ([0-9a-f]+)\)$') AS found
 WHERE txid = :txid AND what = 'COMMIT' AND found IS NOT NULL;
