"""
Tables as DataFrames: staged as files, and read as a cut sees them.

Spark's executors write files out of readers' sight, and do not commit them. The columns carry field ids; without them
no engine could read the files. Files are partitioned by *copies* of the partition columns: Spark removes the columns it
partitions by from the files, and the table would silently lose them. The copies are unambiguous text, so that NULL, ''
and a value that looks like NULL stay distinct. Time is in UTC regardless of the session's time zone, and buckets are
Iceberg's: Spark's own hash is a different one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from pyiceberg import transforms
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # the conventional name
from pyspark.sql import types as spark

from txsaga.errors import ConfigError, FormatRefused, WarehouseAway
from txsaga.lake.files import Staged, require_columns, require_type
from txsaga.lake.storage import local
from txsaga.lake.table import TableName, read_name

HOUR = 3_600_000_000
TEXT = "="
"""The prefix of every text, so that none is empty or looks like a missing value."""


def copied(schema: Schema, field: PartitionField, name: TableName) -> Column:
    """Return a partition field's values as text."""
    column = str(schema.find_column_name(field.source_id))
    if "." in column:
        raise FormatRefused(f"{name} is partitioned by {column!r}, a part of a column; write it from Arrow")
    source = schema.find_field(field.source_id).field_type
    value = F.col(f"`{column}`")
    match field.transform:
        case transforms.IdentityTransform():
            return _text(value, source)
        case transforms.VoidTransform():
            return F.lit(None).cast("string")
        case transforms.HourTransform():
            return F.floor(_micros(value, source) / HOUR).cast("string")
        case transforms.DayTransform():
            return _days(value, source).cast("string")
        case transforms.MonthTransform():
            day = _date(value, source)
            return ((F.year(day) - 1970) * 12 + F.month(day) - 1).cast("string")
        case transforms.YearTransform():
            return (F.year(_date(value, source)) - 1970).cast("string")
        case transforms.TruncateTransform(width=width) if isinstance(source, iceberg.IntegerType | iceberg.LongType):
            return (value - F.pmod(value, F.lit(width))).cast("string")
        case transforms.TruncateTransform(width=width) if isinstance(source, iceberg.StringType):
            return F.concat(F.lit(TEXT), F.substring(value, 1, width))
        case _:
            return _by_python(value, field, source)


def read_value(text: str | None, kind: iceberg.IcebergType) -> Any:
    """Parse the value of a partition field of this type."""
    return None if text is None else READ[type(kind)](text)


def _text(value: Column, kind: iceberg.IcebergType) -> Column:
    if isinstance(kind, iceberg.StringType):
        return F.concat(F.lit(TEXT), value)
    if isinstance(kind, iceberg.BinaryType):
        return F.concat(F.lit(TEXT), F.hex(value))
    if isinstance(kind, iceberg.DateType):
        return _days(value, kind).cast("string")
    if isinstance(kind, iceberg.TimestampType | iceberg.TimestamptzType):
        return _micros(value, kind).cast("string")
    return value.cast("string")


def _micros(value: Column, kind: iceberg.IcebergType) -> Column:
    if isinstance(kind, iceberg.TimestamptzType):
        return F.unix_micros(value)
    start = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.timestamp_diff("MICROSECOND", start, value)


def _days(value: Column, kind: iceberg.IcebergType) -> Column:
    if isinstance(kind, iceberg.DateType):
        return F.unix_date(value)
    return F.floor(_micros(value, kind) / (24 * HOUR))


def _date(value: Column, kind: iceberg.IcebergType) -> Column:
    return value if isinstance(kind, iceberg.DateType) else F.date_from_unix_date(_days(value, kind).cast("int"))


def _by_python(value: Column, field: PartitionField, source: iceberg.IcebergType) -> Column:
    """Compute in Python workers what only they can: they need PyIceberg too."""
    import pandas as pd
    from pyspark.sql.pandas import functions

    transform: Callable[[Any], Any] = field.transform.transform(source)
    whole = isinstance(source, iceberg.DateType | iceberg.TimestampType | iceberg.TimestamptzType)
    writes_bytes = isinstance(source, iceberg.BinaryType) and isinstance(field.transform, transforms.TruncateTransform)

    def reckon(values: pd.Series) -> pd.Series:
        done = [None if each is None or each is pd.NA or each != each else transform(each) for each in values]
        said = [each if each is None else f"={each.hex().upper()}" if writes_bytes else str(each) for each in done]
        return pd.Series(said, dtype=object)

    reckon.__annotations__ = {"values": pd.Series, "return": pd.Series}  # Spark reads them, and not as strings
    given = value
    if whole:
        given = _micros(value, source) if not isinstance(source, iceberg.DateType) else _days(value, source)
    make: Any = functions.pandas_udf  # its overloads accept no plain function
    reckoned: Column = make(reckon, "string")(given)
    return reckoned


READ: dict[type[iceberg.IcebergType], Callable[[str], Any]] = {
    iceberg.BooleanType: lambda text: text == "true",
    iceberg.IntegerType: int,
    iceberg.LongType: int,
    iceberg.DateType: int,
    iceberg.TimestampType: int,
    iceberg.TimestamptzType: int,
    iceberg.FloatType: float,
    iceberg.DoubleType: float,
    iceberg.DecimalType: Decimal,
    iceberg.StringType: lambda text: text.removeprefix(TEXT),
    iceberg.BinaryType: lambda text: bytes.fromhex(text.removeprefix(TEXT)),
}


TYPES: dict[type[iceberg.IcebergType], spark.DataType] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.StringType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
}
WIDER = {"int": {"tinyint", "smallint"}, "bigint": {"tinyint", "smallint", "int"}, "double": {"float"}}
AS_ICEBERG_READS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # else INT96, which no other engine reads right
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
NOTHING = "__HIVE_DEFAULT_PARTITION__"


def write(name: TableName, metadata: TableMetadata, rows: Any, folder: str) -> list[Staged]:
    """Write a DataFrame as files with a table's current schema and partitions."""
    frame: DataFrame = rows
    if frame.isStreaming:
        raise FormatRefused(f"the rows for {name} are a stream; write each batch of it, with foreachBatch")
    schema, spec = metadata.schema(), metadata.spec()
    require_columns(name, schema, spec, frame.columns)
    fitted = _fitted(name, schema, frame)
    parts = {f"_p{number}": field for number, field in enumerate(spec.fields)}
    for column, field in parts.items():
        fitted = fitted.withColumn(column, copied(schema, field, name))
    if parts:
        fitted = fitted.repartition(*parts)
    codec = metadata.properties.get("write.parquet.compression-codec", "zstd")
    with _settings(frame.sparkSession):
        writer = fitted.write.mode("errorifexists").option("compression", codec)
        (writer.partitionBy(*parts) if parts else writer).parquet(folder)
    return list(_staged(folder, schema, list(parts.values())))


def _fitted(name: TableName, schema: Schema, frame: DataFrame) -> DataFrame:
    """Give the columns the names, types and field ids of the table."""
    columns = []
    given = {field.name: field.dataType for field in frame.schema.fields}
    for field in schema.fields:
        wanted = _type(name, field.name, field.field_type)
        simple, found = wanted.simpleString(), given[field.name].simpleString()
        if not _widens(given[field.name], wanted):
            require_type(name, field.name, found, simple)
        column = F.col(f"`{field.name}`")
        cast = column if simple == found else column.cast(wanted)
        columns.append(cast.alias(field.name, metadata={"parquet.field.id": field.field_id}))
    chosen = frame.select(*columns)
    nested = any(isinstance(field.field_type, iceberg.StructType) for field in schema.fields)
    return chosen.to(with_ids(name, schema)) if nested else chosen


def _widens(given: spark.DataType, wanted: spark.DataType) -> bool:
    one, other = given.simpleString(), wanted.simpleString()
    if one == other or one in WIDER.get(other, ()) or isinstance(given, spark.NullType):
        return True
    if isinstance(given, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return given.scale == wanted.scale and given.precision <= wanted.precision
    return False


def _type(name: TableName, column: str, kind: iceberg.IcebergType) -> spark.DataType:
    if isinstance(kind, iceberg.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, iceberg.StructType):
        fields = [spark.StructField(each.name, _type(name, each.name, each.field_type)) for each in kind.fields]
        return spark.StructType(fields)
    if type(kind) not in TYPES:
        raise FormatRefused(
            f"column {column!r} of {name} is {kind}, which Spark can't write with the table's field ids; "
            "write it from Arrow, or by Spark on a branch"
        )
    return TYPES[type(kind)]


def with_ids(name: TableName, schema: Schema | iceberg.StructType) -> spark.StructType:
    """Return the schema in Spark's types with field ids, including those of nested fields."""

    def kind(each: Any) -> spark.DataType:
        inner = each.field_type
        return with_ids(name, inner) if isinstance(inner, iceberg.StructType) else _type(name, each.name, inner)

    return spark.StructType(
        [
            spark.StructField(each.name, kind(each), nullable=True, metadata={"parquet.field.id": each.field_id})
            for each in schema.fields
        ]
    )


def _staged(folder: str, schema: Schema, fields: list[PartitionField]) -> Iterator[Staged]:
    """Yield the files of a folder with the partition values in their paths."""
    kinds = [field.transform.result_type(schema.find_field(field.source_id).field_type) for field in fields]
    for location in _files_below(folder):
        names = location.removeprefix(f"{folder}/").split("/")[:-1]
        texts = [unquote(each.partition("=")[2]) for each in names]
        values = [read_value(None if text == NOTHING else text, kind) for text, kind in zip(texts, kinds, strict=True)]
        yield location, Record(*values)


def _files_below(location: str) -> Iterator[str]:
    """Yield the locations of all data files below a local folder."""
    folder = local(location)
    if folder is None:
        raise WarehouseAway(f"{location} can't be listed: Spark can stage only on local file systems; write from Arrow")
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith((".", "_temporary")) for part in path.relative_to(folder).parts):
            yield f"{location}/{path.relative_to(folder)}"


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Make Spark write as Iceberg reads, and restore the caller's settings."""
    before = {key: session.conf.get(key, None) for key in AS_ICEBERG_READS}
    try:
        for key, value in AS_ICEBERG_READS.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, known in before.items():
            if known is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, known)


BY_ID = "spark.sql.parquet.fieldId.read.enabled"


class Frames:
    """The tables of one cut: each reads the snapshot of that moment, however often and however late it is used.

    If the session has the home catalog open, Spark reads the snapshot by its id. Otherwise it reads the snapshot's
    files by their field ids, provided that there are no delete files.
    """

    def __init__(self, session: Any, tables: Mapping[TableName, StaticTable]) -> None:
        self._spark: SparkSession = session
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
                f"{name} has separate delete files, which only the Iceberg runtime reads; set TXSAGA_SPARK_JARS"
            )
        schema = with_ids(name, table.schema())
        if not tasks:
            return self._spark.createDataFrame([], schema)
        self._spark.conf.set(BY_ID, "true")  # renamed columns keep their ids; Spark refuses files without ids
        return self._spark.read.schema(schema).parquet(*[task.file.file_path for task in tasks])
