"""Namespaces that tests emptied, for later tests: most of an installation is the making of tables.

One that a test altered, or that somebody still works in, is left where it is.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Any, LiteralString

import psycopg
from sqlalchemy import URL, Connection, text

from tests.services.databases import fresh_name

PATIENCE_SECONDS = 0.1
"""How long sessions that a test closed may take to go."""

# What may differ between two namespaces that are as installed: their names.
AS_IT_IS: LiteralString = """
WITH s AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = %(s)s),
     c AS (SELECT c.* FROM pg_class c JOIN s ON s.oid = c.relnamespace),
     fact (told) AS (
    SELECT ROW ('schema', nspowner, nspacl)::text FROM s
    UNION ALL
    SELECT ROW (relname, relkind, relpersistence, reloptions, relowner, relacl, relrowsecurity, relreplident,
                pg_get_expr(relpartbound, oid))::text FROM c
    UNION ALL
    SELECT ROW (c.relname, a.attnum, a.attname, t.typname, a.atttypmod, a.attnotnull, a.attstorage, a.attacl,
                a.attstattarget, replace(pg_get_expr(d.adbin, d.adrelid), %(s)s, ''))::text
      FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 JOIN pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum) WHERE relkind IN ('r', 'p')
    UNION ALL
    SELECT ROW (o.conname, c.relname, o.contype, o.conkey, o.convalidated,
                replace(pg_get_constraintdef(o.oid), %(s)s, ''))::text
      FROM s JOIN pg_constraint o ON o.connamespace = s.oid LEFT JOIN c ON c.oid = o.conrelid
    UNION ALL
    SELECT ROW (c.relname, x.indisvalid, replace(pg_get_indexdef(c.oid), %(s)s, ''))::text
      FROM c JOIN pg_index x ON x.indexrelid = c.oid
    UNION ALL
    SELECT ROW (c.relname, p.polname, p.polcmd, p.polroles, replace(pg_get_expr(p.polqual, c.oid), %(s)s, ''))::text
      FROM c JOIN pg_policy p ON p.polrelid = c.oid
    UNION ALL
    SELECT ROW (c.relname, t.tgname, t.tgenabled)::text FROM c JOIN pg_trigger t ON t.tgrelid = c.oid
     WHERE NOT tgisinternal
    UNION ALL
    SELECT ROW (proname, proargtypes, proowner, proacl, prosecdef, proconfig, md5(replace(prosrc, %(s)s, '')))::text
      FROM pg_proc JOIN s ON s.oid = pronamespace
    UNION ALL
    SELECT ROW (typname, typowner, typacl)::text FROM pg_type JOIN s ON s.oid = typnamespace WHERE typtype = 'd'
    UNION ALL
    SELECT ROW (c.relname, q.seqstart, q.seqincrement, q.seqmax, q.seqcache)::text
      FROM c JOIN pg_sequence q ON q.seqrelid = c.oid
    UNION ALL
    SELECT ROW ('analyzed', c.relname)::text FROM c WHERE EXISTS (SELECT FROM pg_statistic WHERE starelid = c.oid))
SELECT md5(string_agg(told, chr(10) ORDER BY told)) FROM fact"""

# Sessions of a program, open and prepared transactions.
IN_USE: LiteralString = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND strpos(application_name, %(s)s) > 0)
    OR EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                WHERE c.relnamespace = to_regnamespace(%(s)s) AND l.database <> 0
                  AND l.pid IS DISTINCT FROM pg_backend_pid())"""

# A table that has grown gets new files, the others keep theirs: that is faster.
EMPTIED = """
DO $$ DECLARE it record; BEGIN
    SET LOCAL lock_timeout = '1s';
    SET LOCAL session_replication_role = replica;
    FOR it IN SELECT oid::regclass AS name, relkind, pg_relation_size(oid) AS size FROM pg_class
               WHERE relnamespace = '{s}'::regnamespace AND relkind IN ('r', 'S') AND relname <> 'alembic_version' LOOP
        IF it.relkind = 'S' THEN
            PERFORM setval(it.name, (SELECT seqstart FROM pg_sequence WHERE seqrelid = it.name), false);
        ELSIF it.size > 65536 THEN
            EXECUTE 'TRUNCATE ' || it.name || ' CASCADE';
        ELSIF it.size > 0 THEN
            EXECUTE 'DELETE FROM ' || it.name;
        END IF;
    END LOOP;
END $$"""


class Spares:
    """The emptied namespaces of one database."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._where: URL | None = None
        self._as_made: str | None = None
        self._session: psycopg.Connection | None = None
        """Kept from test to test: a new one would read the whole catalog anew."""

    def take(self, connection: Connection, namespace: str) -> bool:
        """Rename a spare one, if nothing has the name yet; its functions still name the old one."""
        if not self._ready or connection.engine.url != self._where:
            return False
        if connection.execute(text("SELECT to_regnamespace(:s)"), {"s": namespace}).scalar() is not None:
            return False
        connection.exec_driver_sql(f'ALTER SCHEMA "{self._ready.pop()}" RENAME TO "{namespace}"')
        return True

    def give_back(self, home_url: str) -> None:
        """Empty the namespace of a test for a later one, if it is as it was installed."""
        from txsaga.store.connection import parse_url
        from txsaga.wiring.connecting import open_store

        url, namespace = parse_url(home_url)
        if self._where is None:
            self._where, new = url, fresh_name("t")
            open_store(home_url.replace(namespace, new)).close()
            self._as_made = described_in_short(url, new)
        if self._session is None or not _answers(self._session):
            self._session = _session(url)
        with suppress(psycopg.errors.LockNotAvailable):
            if self._is_as_made(self._session, namespace):
                self._session.execute(EMPTIED.format(s=namespace))
                self._ready.append(namespace)

    def close(self) -> None:
        """End the session that looks at namespaces."""
        if self._session is not None:
            self._session.close()

    def _is_as_made(self, session: psycopg.Connection, namespace: str) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _value(session, IN_USE, namespace):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return _described(session, namespace) == self._as_made


def described_in_short(url: URL, namespace: str) -> str | None:
    """Return a digest of everything that a namespace is, save its name and its rows; None if it is not there."""
    with closing(_session(url)) as session:
        return _described(session, namespace)


def _described(session: psycopg.Connection, namespace: str) -> str | None:
    digest = _value(session, AS_IT_IS, namespace)
    if _value(session, "SELECT to_regclass(format('%%I.alembic_version', %(s)s::text))", namespace) is None:
        return None
    version = session.execute(f'SELECT version_num FROM "{namespace}".alembic_version')
    return f"{digest} {version.fetchall()}"


def _answers(session: psycopg.Connection) -> bool:
    try:
        session.execute("SELECT")
    except psycopg.OperationalError:
        return False
    return True


def _session(url: URL) -> psycopg.Connection:
    return psycopg.connect(url.set(drivername="postgresql").render_as_string(False), autocommit=True)


def _value(session: psycopg.Connection, sql: LiteralString, namespace: str) -> Any:  # whatever the statement selects
    row = session.execute(sql, {"s": namespace}).fetchone()
    return row and row[0]
