"""
The catalog in the home database: PyIceberg's SQL catalog on txsaga's own connections.

Its rows are those of any Iceberg JDBC catalog, so Spark opens it as one. Writes through it outside of a transaction (a
table that is created or maintained by hand) compare and set the pointer like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, select, tuple_

from txsaga.lake.catalog_tables import iceberg_tables
from txsaga.lake.table import TableName
from txsaga.store.connection import translating


class HomeCatalog(SqlCatalog):
    """An ordinary PyIceberg catalog; other engines must open it under the same name."""

    def __init__(self, name: str, engine: Engine, **properties: str) -> None:
        MetastoreCatalog.__init__(self, name, **properties)  # SqlCatalog's would open connections of its own
        self.engine = engine
        self._schema_version = "v1"  # migrations created the tables

    def pointer(self, name: TableName) -> str | None:
        """Return the location of a table's newest metadata."""
        return self.pointers([name]).get(name)

    def pointers(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        """Return the locations of the newest metadata of several tables, in one query."""
        c = iceberg_tables.c
        place = (c.catalog_name, c.table_namespace, c.table_name)
        kind = (c.iceberg_type == "TABLE") | c.iceberg_type.is_(None)  # not a view of another engine
        asked = select(*place, c.metadata_location).where(tuple_(*place).in_([tuple(name) for name in names]), kind)
        with translating(), self.engine.connect() as connection:
            return {TableName(*row[:3]): row[3] for row in connection.execute(asked)}
