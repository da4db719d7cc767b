"""The catalog of tables, as any Iceberg JDBC catalog keeps it, and who overwrites what."""

from alembic import op

revision = "0011"
down_revision = "0010"

SQL = """
CREATE TABLE iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5) DEFAULT 'TABLE',
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);

CREATE TABLE table_intent (
    catalog VARCHAR NOT NULL,
    namespace VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    txid BIGINT NOT NULL,
    PRIMARY KEY (catalog, namespace, name, part)
);

CREATE INDEX ix_table_intent_txid ON table_intent (txid);

ALTER TABLE table_intent ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON table_intent FOR SELECT USING (true);
CREATE POLICY new ON table_intent FOR INSERT WITH CHECK ((SELECT everywhere()) OR ours(txid));
CREATE POLICY taken ON table_intent FOR UPDATE USING (true) WITH CHECK ((SELECT everywhere()) OR ours(txid));
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(SQL)
