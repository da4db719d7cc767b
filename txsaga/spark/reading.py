"""
Tables of a cut as DataFrames: each reads the snapshot of that moment, however often and however late it is used.

If the session has the home catalog open, Spark reads the snapshot by its id. Otherwise it reads the snapshot's files by
their field ids, provided that there are no delete files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.table import StaticTable

from txsaga.errors import ConfigError, FormatRefused
from txsaga.lake.table import TableName, read_name
from txsaga.spark.staging import with_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_ID = "spark.sql.parquet.fieldId.read.enabled"


class Frames:
    """The tables of one cut."""

    def __init__(self, spark: Any, tables: Mapping[TableName, StaticTable]) -> None:
        self._spark: SparkSession = spark
        self._tables = tables

    def table(self, said: str) -> DataFrame:
        """Return a table as a DataFrame."""
        name = read_name(next(iter(self._tables)).catalog, said)
        if name not in self._tables:
            raise ConfigError(f"this cut was made without table {said!r}; name it: broker.cut(tables=[{said!r}])")
        table, snapshot = self._tables[name], self._tables[name].current_snapshot()
        if snapshot is None:
            return self._spark.createDataFrame([], with_ids(name, table.schema()))
        if self._spark.conf.get(f"spark.sql.catalog.{name.catalog}", None) is not None:
            return self._spark.read.option("versionAsOf", snapshot.snapshot_id).table(".".join(name))
        return self._files(name, table)

    def _files(self, name: TableName, table: StaticTable) -> DataFrame:
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise FormatRefused(
                f"{name} has deletes beside its files, which only the Iceberg runtime reads; set TXSAGA_SPARK_JARS"
            )
        schema = with_ids(name, table.schema())
        if not tasks:
            return self._spark.createDataFrame([], schema)
        self._spark.conf.set(BY_ID, "true")  # renamed columns keep their ids; other files are unaffected
        return self._spark.read.schema(schema).parquet(*[task.file.file_path for task in tasks])
