"""
Partition values in Spark: a text column for each partition field of a table, and parsed from the name of a folder.

Time is in UTC regardless of the session's time zone, and buckets are Iceberg's: Spark's own hash is a different one.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from txsaga.errors import FormatRefused
from txsaga.lake.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import Column

HOUR = 3_600_000_000
TEXT = "="
"""The prefix of every text, so that none is empty or looks like a missing value."""


def copied(schema: Schema, field: PartitionField, name: TableName) -> Column:
    """Return a partition field's values as text."""
    from pyspark.sql import functions as F  # the conventional name

    column = str(schema.find_column_name(field.source_id))
    if "." in column:
        raise FormatRefused(f"{name} is partitioned by {column!r}, a part of a column; write it from Arrow")
    source = schema.find_field(field.source_id).field_type
    value = F.col(f"`{column}`")
    match field.transform:
        case IdentityTransform():
            return _text(value, source)
        case VoidTransform():
            return F.lit(None).cast("string")
        case HourTransform():
            return F.floor(_micros(value, source) / HOUR).cast("string")
        case DayTransform():
            return _days(value, source).cast("string")
        case MonthTransform():
            day = _date(value, source)
            return ((F.year(day) - 1970) * 12 + F.month(day) - 1).cast("string")
        case YearTransform():
            return (F.year(_date(value, source)) - 1970).cast("string")
        case TruncateTransform(width=width) if isinstance(source, IntegerType | LongType):
            return (value - F.pmod(value, F.lit(width))).cast("string")
        case TruncateTransform(width=width) if isinstance(source, StringType):
            return F.concat(F.lit(TEXT), F.substring(value, 1, width))
        case _:
            return _by_python(value, field, source)


def read_value(text: str | None, kind: IcebergType) -> Any:
    """Parse the value of a partition field of this type."""
    if text is None:
        return None
    return READ[type(kind)](text)


def _text(value: Column, kind: IcebergType) -> Column:
    from pyspark.sql import functions as F  # the conventional name

    if isinstance(kind, StringType):
        return F.concat(F.lit(TEXT), value)
    if isinstance(kind, BinaryType):
        return F.concat(F.lit(TEXT), F.hex(value))
    if isinstance(kind, DateType):
        return _days(value, kind).cast("string")
    if isinstance(kind, TimestampType | TimestamptzType):
        return _micros(value, kind).cast("string")
    return value.cast("string")


def _micros(value: Column, kind: IcebergType) -> Column:
    from pyspark.sql import functions as F  # the conventional name

    if isinstance(kind, TimestamptzType):
        return F.unix_micros(value)
    start = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.timestamp_diff("MICROSECOND", start, value)


def _days(value: Column, kind: IcebergType) -> Column:
    from pyspark.sql import functions as F  # the conventional name

    if isinstance(kind, DateType):
        return F.unix_date(value)
    return F.floor(_micros(value, kind) / (24 * HOUR))


def _date(value: Column, kind: IcebergType) -> Column:
    from pyspark.sql import functions as F  # the conventional name

    return value if isinstance(kind, DateType) else F.date_from_unix_date(_days(value, kind).cast("int"))


def _by_python(value: Column, field: PartitionField, source: IcebergType) -> Column:
    """Compute in Python workers what only they can: they need PyIceberg too."""
    import pandas as pd
    from pyspark.sql.pandas import functions

    transform: Callable[[Any], Any] = field.transform.transform(source)
    whole = isinstance(source, DateType | TimestampType | TimestamptzType)
    writes_bytes = isinstance(source, BinaryType) and isinstance(field.transform, TruncateTransform)

    def reckon(values: pd.Series) -> pd.Series:
        done = [None if each is None or each is pd.NA or each != each else transform(each) for each in values]
        said = [each if each is None else f"={each.hex().upper()}" if writes_bytes else str(each) for each in done]
        return pd.Series(said, dtype=object)

    reckon.__annotations__ = {"values": pd.Series, "return": pd.Series}  # Spark reads them, and not as strings
    given = value
    if whole:
        given = _micros(value, source) if not isinstance(source, DateType) else _days(value, source)
    make: Any = functions.pandas_udf  # its overloads accept no plain function
    reckoned: Column = make(reckon, "string")(given)
    return reckoned


READ: dict[type[IcebergType], Callable[[str], Any]] = {
    BooleanType: lambda text: text == "true",
    IntegerType: int,
    LongType: int,
    DateType: int,
    TimestampType: int,
    TimestamptzType: int,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    StringType: lambda text: text.removeprefix(TEXT),
    BinaryType: lambda text: bytes.fromhex(text.removeprefix(TEXT)),
}
