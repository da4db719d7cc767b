-- name: find
SELECT c.oid, n.nspname AS schema, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name,
       c.relkind IN ('r', 'p') AS is_table
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:said);

-- name: columns
SELECT attname, attgenerated <> '' OR attidentity = 'a' AS made FROM pg_attribute
 WHERE attrelid = :oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- name: lacks
SELECT attname FROM pg_attribute
 WHERE attrelid = :oid AND attname = ANY (:columns) AND NOT has_column_privilege(attrelid, attnum, 'INSERT')
 ORDER BY attnum;

-- name: guarded
-- If a login has INSERT and is refused all the same, a row security policy rejected the row.
SELECT row_security_active({table}::regclass) AND has_any_column_privilege({table}, 'INSERT');

-- name: granted
SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
  FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(:staging) AND grantee <> relowner;

-- name: lost
-- What a table that replaces another would silently lack.
SELECT what FROM pg_class c, LATERAL (VALUES
    ('columns, indexes or checks of its own',
     ARRAY(
    SELECT concat_ws(' ', row_number() OVER (ORDER BY attnum), quote_ident(attname), format_type(atttypid, atttypmod),
                     attcollation, attnotnull, attgenerated, pg_get_expr(adbin, adrelid))
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT replace(pg_get_constraintdef(oid), ' NOT VALID', '') FROM pg_constraint
     WHERE conrelid = c.oid AND contype IN ('c', 'p', 'u', 'x')
    UNION ALL
    SELECT concat_ws(' ', indisunique, substring(pg_get_indexdef(indexrelid) FROM ' USING .*')) FROM pg_index
     WHERE indrelid = c.oid
     ORDER BY 1) <> ARRAY(
    SELECT concat_ws(' ', row_number() OVER (ORDER BY attnum), quote_ident(attname), format_type(atttypid, atttypmod),
                     attcollation, attnotnull, attgenerated, pg_get_expr(adbin, adrelid))
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = to_regclass(:staging) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT replace(pg_get_constraintdef(oid), ' NOT VALID', '') FROM pg_constraint
     WHERE conrelid = to_regclass(:staging) AND contype IN ('c', 'p', 'u', 'x')
    UNION ALL
    SELECT concat_ws(' ', indisunique, substring(pg_get_indexdef(indexrelid) FROM ' USING .*')) FROM pg_index
     WHERE indrelid = to_regclass(:staging)
     ORDER BY 1)),
    ('triggers', EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal)),
    ('foreign keys', EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND c.oid IN (conrelid, confrelid))),
    ('policies', c.relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)),
    ('grants', c.relacl <> acldefault('r', c.relowner)
               OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attacl IS NOT NULL)),
    ('rules', EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid)),
    ('another owner', pg_get_userbyid(c.relowner) <> current_user),
    ('partitions', c.relkind <> 'r' OR EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent))),
    ('an identity column', EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attidentity <> '')),
    ('a publication', EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = c.oid))
  ) AS has (what, it_has) WHERE c.oid = to_regclass(:target) AND it_has;

-- name: own
SELECT pg_get_userbyid(relowner) = current_user AS ours, obj_description(oid, 'pg_class') AS said
  FROM pg_class WHERE oid = to_regclass(:staging);

-- name: left
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS staging, obj_description(c.oid, 'pg_class') AS said
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE starts_with(c.relname, 'txsaga_staged_') AND c.relkind = 'r' AND NOT c.relispartition
   AND pg_get_userbyid(c.relowner) = current_user ORDER BY 1;
