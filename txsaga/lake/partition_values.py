"""
Partition values: of rows that are written to files, and of the partitions that an overwrite names.

They are stored as hex of Iceberg's own bytes, so that any two writers agree on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType, UUIDType

from txsaga.errors import ConfigError, FormatRefused
from txsaga.lake.table import TableName

Where = Mapping[str, Sequence[str | None]]
BY_TIME = {DayTransform: "day", MonthTransform: "day", YearTransform: "day", HourTransform: "hour"}


def split(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Record, pa.Table]]:
    """Yield the partition values and rows of each partition."""
    if spec.is_unpartitioned() or not rows.num_rows:
        if rows.num_rows:
            yield Record(), rows
        return
    encoded = [_values(rows, field, schema) for field in spec.fields]
    code = pa.array([0] * rows.num_rows, pa.int64())
    for numbers, values in encoded:
        code = pc.add(pc.multiply(code, len(values)), numbers)
    order = pc.sort_indices(code)
    runs = pc.run_end_encode(code.take(order))
    start, ordered = 0, rows.take(order)
    for end, combined in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield Record(*_decoded(combined, [values for _, values in encoded])), ordered.slice(start, end - start)
        start = end


def _decoded(code: int, values: Sequence[Sequence[object]]) -> list[Any]:
    found: list[Any] = []
    for each in reversed(values):
        code, number = divmod(code, len(each))
        found.append(each[number])
    return found[::-1]


def _values(rows: pa.Table, field: PartitionField, schema: Schema) -> tuple[pa.Array, list[object]]:
    """Return the index of each row's value, and the values."""
    column: pa.Array = rows.column(str(schema.find_column_name(field.source_id))).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    if pa.types.is_timestamp(column.type) and type(field.transform) in BY_TIME:
        column = pc.floor_temporal(column, unit=BY_TIME[type(field.transform)])  # leaves far fewer distinct values
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    source = schema.find_field(field.source_id).field_type
    transform = field.transform.transform(source)
    values = [None if each is None else transform(each) for each in _internal(encoded.dictionary)]
    place = {value: at for at, value in enumerate(dict.fromkeys(values))}
    numbers = pa.array([place[value] for value in values], pa.int64())
    return numbers.take(encoded.indices), list(place)


def _internal(values: pa.Array) -> list[Any]:
    """Return values in Iceberg's representation: dates and times as numbers."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    found = values.to_pylist()
    if kind == pa.uuid():
        return [each if each is None or isinstance(each, UUID) else UUID(bytes=each) for each in found]
    return found  # type: ignore[no-any-return]


def named(name: TableName, metadata: TableMetadata, where: Mapping[str, object]) -> Where:
    """Read what an overwrite replaces: values of partition fields, or of columns that are partitioned by identity."""
    spec, schema = metadata.spec(), metadata.schema()
    fields = {field.name: field for field in spec.fields}
    for field in spec.fields:
        if isinstance(field.transform, IdentityTransform):
            fields.setdefault(str(schema.find_column_name(field.source_id)), field)
    found: dict[str, list[str | None]] = {}
    for key, said in where.items():
        if key not in fields:
            raise ConfigError(
                f"{name} is partitioned by {', '.join(fields) or 'nothing'}, not by {key!r}: an overwrite replaces "
                "whole partitions; name one, or leave where out to replace everything"
            )
        result = fields[key].transform.result_type(schema.find_field(fields[key].source_id).field_type)
        values = said if isinstance(said, (list, tuple, set, frozenset)) else [said]
        found[fields[key].name] = [_hex(result, each) for each in values]
    if not found or not all(found.values()):
        raise ConfigError(f"an overwrite of {name} names no partition; leave where out to replace everything")
    return found


def parts(where: Where | None) -> list[str]:
    """Return names for the parts that an overwrite replaces, for comparison with other overwrites."""
    if where is None:
        return [""]
    ordered = sorted(where.items())
    return [
        "/".join(f"{name}={value}" for (name, _), value in zip(ordered, each, strict=True))
        for each in product(*(values for _, values in ordered))
    ]


def matches(metadata: TableMetadata, file: DataFile, where: Where | None, name: TableName) -> bool:
    """Return whether a file is in the partitions that an overwrite replaces."""
    if where is None:
        return True
    spec = metadata.specs()[file.spec_id]
    places = {field.name: at for at, field in enumerate(spec.fields)}
    kinds = spec.partition_type(metadata.schema()).fields
    for field, values in where.items():
        if field not in places:
            raise FormatRefused(
                f"{name} has files from before it was partitioned by {field!r}; "
                "overwrite all of it, or rewrite them first"
            )
        kind = kinds[places[field]].field_type
        assert isinstance(kind, PrimitiveType)
        if _bytes_of(kind, file.partition[places[field]]) not in values:
            return False
    return True


def _hex(kind: Any, value: object) -> str | None:
    if value is None:
        return None
    try:
        read: Any = value if isinstance(kind, UUIDType) else literal(value).to(kind).value  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{value} is not a value of a partition by {kind}: {error}") from error
    return _bytes_of(kind, read)


def _bytes_of(kind: PrimitiveType, value: Any) -> str | None:
    return None if value is None else to_bytes(kind, value).hex()
