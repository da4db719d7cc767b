"""
The catalog in the home database: PyIceberg's SQL catalog on our own connections.

Its rows are those of any Iceberg JDBC catalog, so that Spark opens it as one. What is written through it outside of a
transaction (a table that somebody creates or maintains by hand) is compared and set like everything else.
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
    """An ordinary PyIceberg catalog; its name is what other engines must call it too."""

    def __init__(self, name: str, engine: Engine, **properties: str) -> None:
        MetastoreCatalog.__init__(self, name, **properties)  # the next one would open connections of its own
        self.engine = engine
        self._schema_version = "v1"  # migrations made the tables

    def pointer(self, name: TableName) -> str | None:
        """Return where the newest metadata of a table lies."""
        return self.pointers([name]).get(name)

    def pointers(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        """Return where the newest metadata of tables lies, all of them by one question."""
        c = iceberg_tables.c
        place = (c.catalog_name, c.table_namespace, c.table_name)
        kind = (c.iceberg_type == "TABLE") | c.iceberg_type.is_(None)  # not a view of another engine's
        asked = select(*place, c.metadata_location).where(tuple_(*place).in_([tuple(name) for name in names]), kind)
        with translating(), self.engine.connect() as connection:
            return {TableName(*row[:3]): row[3] for row in connection.execute(asked)}
