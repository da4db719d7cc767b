-- name: pointers
SELECT catalog_name, table_namespace, table_name, metadata_location FROM txsaga.iceberg_tables
 WHERE (catalog_name, table_namespace, table_name) IN (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]));

-- name: heads
SELECT t.name, array_agg(q.head ORDER BY q.idx) FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id
 WHERE strpos(t.name, '~') = 0 GROUP BY t.name ORDER BY t.name;
