"""A namespace as the server's own catalog describes it: every column, constraint, index and storage choice.

Partitions and Alembic's own table are left out: they are no part of the tables' definition.
"""

from sqlalchemy import Engine, text

TABLES = """
c.relnamespace = '{s}'::regnamespace AND NOT c.relispartition AND c.relname NOT LIKE 'alembic_version%'"""

DESCRIPTIONS = {
    "relation": """
        SELECT c.relname, c.relkind, c.relpersistence, c.reloptions, pg_get_partkeydef(c.oid),
               CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END
          FROM pg_class c WHERE {tables} AND c.relkind IN ('r', 'p', 'S', 'v')""",
    "column": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attgenerated, a.attstorage, a.attcompression, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
         WHERE {tables} AND c.relkind IN ('r', 'p')""",
    "constraint": """
        SELECT c.relname, o.conname, o.contype, o.condeferrable, pg_get_constraintdef(o.oid)
          FROM pg_class c JOIN pg_constraint o ON o.conrelid = c.oid WHERE {tables}""",
    "index": """
        SELECT c.relname, i.relname, x.indisunique, x.indisprimary, replace(pg_get_indexdef(i.oid), '{s}.', ''),
               i.reloptions
          FROM pg_class c JOIN pg_index x ON x.indrelid = c.oid JOIN pg_class i ON i.oid = x.indexrelid
         WHERE {tables}""",
    "domain": """
        SELECT t.typname, format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault, o.conname,
               pg_get_constraintdef(o.oid)
          FROM pg_type t LEFT JOIN pg_constraint o ON o.contypid = t.oid
         WHERE t.typnamespace = '{s}'::regnamespace AND t.typtype = 'd'""",
    "sequence": """
        SELECT c.relname, s.seqtypid::regtype::text, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache,
               s.seqcycle
          FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid WHERE {tables}""",
}

INSTALLED = [
    "SELECT md5(replace(p.prosrc, :s, 'it')), p.proname, p.prosecdef, p.proconfig::text, p.proacl::text FROM pg_proc p "
    "WHERE p.pronamespace = to_regnamespace(:s) ORDER BY 2, 1",
    "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = :s ORDER BY 1, 2",
    "SELECT relname, relrowsecurity, relacl::text FROM pg_class WHERE relnamespace = to_regnamespace(:s) ORDER BY 1",
]

DRIFT = [
    "ALTER TABLE half ALTER body SET STORAGE EXTENDED",
    "ALTER TABLE queue SET (fillfactor = 90)",
    "ALTER TABLE cursor RESET (fillfactor)",
    "ALTER TABLE tx ALTER owner SET DEFAULT 2",
    "ALTER TABLE log ALTER at SET DEFAULT clock_timestamp()",
    "ALTER TABLE doubt ALTER check_at DROP NOT NULL",
    "ALTER TABLE lease ALTER epoch TYPE integer",
    "ALTER TABLE tx DROP CONSTRAINT tx_state_check",
    "ALTER DOMAIN tx_decision DROP CONSTRAINT tx_decision_check",
    "ALTER TABLE tx DROP CONSTRAINT tx_pgroup_key_epoch_key",
    "ALTER TABLE queue DROP CONSTRAINT queue_topic_fkey",
    "ALTER TABLE topic ADD extra integer",
    "ALTER SEQUENCE tx_seq CACHE 10",
    "DROP INDEX tx_open",
    "CREATE INDEX tx_open ON tx (touched) WHERE state = 'active'",
]
"""Changes of a definition, each of which a check of it must see."""


def described(engine: Engine, namespace: str) -> set[tuple[object, ...]]:
    """Return every fact about the definition of a namespace's tables."""
    facts: set[tuple[object, ...]] = set()
    with engine.connect() as connection:
        connection.execute(text(f'SET search_path = "{namespace}"'))  # so that names in defaults stand alone
        for kind, query in DESCRIPTIONS.items():
            sql = query.format(tables=TABLES.format(s=namespace), s=namespace)
            rows = connection.execute(text(sql)).all()
            assert rows, f"no {kind} was found in {namespace}"
            facts |= {(kind, *(repr(value) for value in row)) for row in rows}
    return facts


def installed(engine: Engine, namespace: str) -> list[str]:
    """Return what belongs to the tables: functions, policies, rights, partitions."""
    with engine.connect() as connection:
        rows = [row for sql in INSTALLED for row in connection.execute(text(sql), {"s": namespace})]
    return [str(row).replace(namespace, "it") for row in rows]
