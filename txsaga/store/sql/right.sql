-- name: here
SELECT pg_has_role(relowner, 'USAGE'), ARRAY(
         SELECT r FROM unnest(CAST(:rights AS text[])) r WHERE has_column_privilege(t.oid, r, 'REFERENCES'))
  FROM pg_class t WHERE oid = to_regclass(:sign);

-- name: holders
-- The roles that hold a right directly, and the members of such a role.
WITH RECURSIVE held AS (
    SELECT a.attname::text AS right, r.oid, r.rolname::text AS role, NULL::text COLLATE "C" AS through
      FROM pg_attribute a, aclexplode(a.attacl) x JOIN pg_roles r ON r.oid = x.grantee
     WHERE a.attrelid = to_regclass(:sign) AND x.privilege_type = 'REFERENCES'
    UNION
    SELECT h.right, r.oid, r.rolname::text, h.role FROM held h
      JOIN pg_auth_members m ON m.roleid = h.oid JOIN pg_roles r ON r.oid = m.member)
SELECT role, "right", through FROM held ORDER BY role, "right", through;

-- name: groups
SELECT role, name FROM txsaga.producer_group WHERE role IS NOT NULL ORDER BY name;

-- name: group
SELECT role FROM txsaga.producer_group WHERE name = :name;

-- name: named
SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = :role;

-- name: makes_roles
SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user;

-- name: lets_in
-- May this user add members to an existing role?
SELECT r.rolsuper OR pg_has_role(c.oid, 'MEMBER WITH ADMIN OPTION')
       OR r.rolcreaterole AND current_setting('server_version_num')::int < 160000
  FROM pg_roles r, pg_roles c WHERE r.rolname = current_user AND c.rolname = :role;

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0));

-- name: owner
-- A superuser who migrates another role's namespace must not own anything in it afterwards.
SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
 WHERE oid = to_regclass(:half) AND pg_get_userbyid(relowner) <> current_user
   AND pg_has_role(relowner, 'MEMBER');
