"""A namespace as the server's own catalog describes it: every column, constraint, index and storage choice.

Partitions and Alembic's own table are left out: they are no part of the tables' definition.
"""

from sqlalchemy import Engine, text

TABLES = """
c.relnamespace = '{s}'::regnamespace AND NOT c.relispartition AND c.relname NOT LIKE 'alembic_version%'"""

DESCRIPTIONS = {
    "relation": """
        SELECT c.relname, c.relkind, c.relpersistence, c.reloptions, pg_get_partkeydef(c.oid)
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
