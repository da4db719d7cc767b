-- name: reserve
-- One transaction at a time checks a table: two that both see it free would both reserve it.
SELECT i.txid FROM txsaga.table_intent i
 WHERE i.catalog = :catalog AND i.namespace = :namespace AND i.name = :name AND i.txid <> :txid
   AND (i.part = ANY (:parts) OR i.part = '' OR '' = ANY (:parts))
   AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = i.txid)
 LIMIT 1;

-- name: take
INSERT INTO txsaga.table_intent (catalog, namespace, name, part, txid)
SELECT :catalog, :namespace, :name, part, :txid FROM unnest(CAST(:parts AS varchar[])) AS part
    ON CONFLICT (catalog, namespace, name, part) DO UPDATE SET txid = excluded.txid;

-- name: turn
SELECT pg_advisory_xact_lock(hashtextextended(:key, 0));
