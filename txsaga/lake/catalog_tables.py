"""
The tables of the catalog, and which transaction overwrites what.

The first two are those of any Iceberg JDBC catalog (V1). Other engines read and write the same rows, so the columns
must not change.
"""

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, String, Table, text

from txsaga.store.types import metadata

iceberg_tables = Table(
    "iceberg_tables",
    metadata,
    Column("catalog_name", String(255), nullable=False),
    Column("table_namespace", String(255), nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5), server_default=text("'TABLE'")),
    PrimaryKeyConstraint("catalog_name", "table_namespace", "table_name"),
)

iceberg_namespace_properties = Table(
    "iceberg_namespace_properties",
    metadata,
    Column("catalog_name", String(255), nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("property_key", String(255), nullable=False),
    Column("property_value", String(1000)),
    PrimaryKeyConstraint("catalog_name", "namespace", "property_key"),
)

table_intent = Table(
    "table_intent",
    metadata,
    Column("catalog", String, nullable=False),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("part", String, nullable=False),  # of the table; '' is the whole table
    Column("txid", BigInteger, nullable=False, index=True),
    PrimaryKeyConstraint("catalog", "namespace", "name", "part"),
)
