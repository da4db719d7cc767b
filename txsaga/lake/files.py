"""
Data files: rows checked against the columns of their table, Parquet written from Arrow, the footers of Parquet files.

Anything that would be lost or changed silently is refused. Spark's files and ours are read back the same way, so that
statistics and sizes are those of the stored files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from txsaga.errors import ColumnsDiffer, ConfigError, NullRefused, TypeDiffers
from txsaga.lake.partition_values import split
from txsaga.lake.storage import Storage
from txsaga.lake.table import TableName


def require_columns(name: TableName, schema: Schema, spec: PartitionSpec, given: Sequence[str]) -> None:
    """Refuse rows that lack columns of the table or have additional ones."""
    known = [field.name for field in schema.fields]
    missing, other = [each for each in known if each not in given], [each for each in given if each not in known]
    if repeated := [each for each in dict.fromkeys(given) if list(given).count(each) > 1]:
        raise ColumnsDiffer(f"the rows for {name} have column {repeated[0]!r} more than once; rename one")
    lost = {schema.find_column_name(field.source_id) for field in spec.fields}
    for column in missing:
        if column in lost:
            raise ColumnsDiffer(
                f"the rows for {name} lack {column!r}, by which it is partitioned: it must stay a column of the rows; "
                "don't drop it, and don't write with partitionBy"
            )
    if missing:
        raise ColumnsDiffer(
            f"the rows for {name} lack {_named(missing)}; "
            f"add {'them' if len(missing) > 1 else 'it'}, as NULL if need be"
        )
    if other:
        raise ColumnsDiffer(
            f"table {name} has no {_named(other)}; leave {'them' if len(other) > 1 else 'it'} out, or change the "
            "table first, in a separate statement: ALTER TABLE … ADD COLUMN"
        )


def require_type(name: TableName, column: str, given: str, wanted: str) -> None:
    """Refuse a column of a different type."""
    raise TypeDiffers(f"column {column!r} of the rows for {name} is {given}, the table has {wanted}; cast it before")


def require_no_null(name: TableName, column: str, nulls: int) -> None:
    """Refuse NULL in a required column."""
    if nulls:
        raise NullRefused(
            f"column {column!r} of {name} is required, and {nulls} rows have NULL in it; fill or drop them"
        )


def fitted(name: TableName, schema: Schema, rows: pa.Table) -> pa.Table:
    """Return rows with the types and field ids of the table, or refuse them."""
    target = schema_to_pyarrow(schema)
    columns = []
    for field, wanted in zip(schema.fields, target, strict=True):
        column = rows.column(field.name)
        if not _widens(column.type, wanted.type):
            require_type(name, field.name, str(column.type), str(field.field_type))
        try:
            cast = column.cast(wanted.type)
        except pa.ArrowInvalid as error:
            raise TypeDiffers(
                f"column {field.name!r} of the rows for {name} does not fit: {error}; cast it before"
            ) from error
        if field.required:
            require_no_null(name, field.name, cast.null_count)
        columns.append(cast)
    return pa.Table.from_arrays(columns, schema=target)


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of the given type is a value of the wanted one."""
    if pa.types.is_dictionary(given):
        return _widens(given.value_type, wanted)
    if given.equals(wanted) or pa.types.is_null(given):
        return True
    for alike in (_text, _binary, pa.types.is_time, pa.types.is_timestamp):
        if alike(given) and alike(wanted):
            return alike is not pa.types.is_timestamp or (given.tz is None) == (wanted.tz is None)
    for sized in (pa.types.is_integer, pa.types.is_floating):
        if sized(given) and sized(wanted):
            return bool(given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
    return _nested(given, wanted)


def _nested(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        if [each.name for each in given] != [each.name for each in wanted]:
            return False
        return all(_widens(one.type, other.type) for one, other in zip(given, wanted, strict=True))
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _widens(given.key_type, wanted.key_type) and _widens(given.item_type, wanted.item_type)
    lists = pa.types.is_list, pa.types.is_large_list
    if any(is_list(given) for is_list in lists) and any(is_list(wanted) for is_list in lists):
        return _widens(given.value_type, wanted.value_type)
    return False


def _text(each: pa.DataType) -> bool:
    return bool(pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_string_view(each))


def _binary(each: pa.DataType) -> bool:
    return bool(pa.types.is_binary(each) or pa.types.is_large_binary(each) or pa.types.is_binary_view(each))


def _named(columns: Sequence[str]) -> str:
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(map(repr, columns))}"


def mapping_of(columns: Mapping[str, str]) -> Schema:
    """Read columns given as name → type; `not null` after the type makes a column required."""
    fields = []
    for number, (column, said) in enumerate(columns.items(), 1):
        kind, required = said.removesuffix(" not null"), said.endswith(" not null")
        try:
            fields.append(NestedField(field_id=number, name=column, field_type=kind, required=required))
        except ValueError as error:
            raise ConfigError(
                f"column {column!r} can't be {said!r}: write a type of Iceberg, like long or date"
            ) from error
    return Schema(*fields)


FILE_BYTES = 128 * 1024 * 1024
"""Bytes of a stream that are held in memory, and split into partitions, at a time."""
READERS = 8

Staged = tuple[str, Record]
"""The location of a file, and its partition values."""


def pieces(rows: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield rows in pieces that fit into memory."""
    if isinstance(rows, pa.Table):
        yield rows
        return
    held: list[pa.RecordBatch] = []
    for batch in rows:
        held.append(batch)
        if sum(each.nbytes for each in held) >= FILE_BYTES:
            yield pa.Table.from_batches(held, rows.schema)
            held = []
    if held:
        yield pa.Table.from_batches(held, rows.schema)


def write(
    name: TableName, metadata: TableMetadata, rows: pa.Table | pa.RecordBatchReader, storage: Storage, folder: str
) -> list[Staged]:
    """Write Arrow rows as files with the table's current schema and partitions."""
    schema, spec = metadata.schema(), metadata.spec()
    require_columns(name, schema, spec, rows.schema.names)
    staged: list[Staged] = []
    for piece in pieces(rows):
        for values, part in split(fitted(name, schema, piece), spec, schema):
            location = f"{folder}/{len(staged):05d}.parquet"
            with storage.io(location).new_output(location).create() as stream:
                _write(part, stream, metadata)
            staged.append((location, values))
    return staged


def _write(rows: pa.Table, stream: Any, metadata: TableMetadata) -> None:
    said = metadata.properties
    codec = said.get("write.parquet.compression-codec", "zstd")
    level = said.get("write.parquet.compression-level")
    with pq.ParquetWriter(
        stream,
        rows.schema,
        compression="none" if codec == "uncompressed" else codec,
        compression_level=int(level) if level else None,
        store_decimal_as_integer=True,
    ) as writer:
        writer.write_table(rows)


def described(
    name: TableName, metadata: TableMetadata, staged: Sequence[Staged], storage: Storage, io: FileIO
) -> list[DataFile]:
    """Describe staged files by their footers; refuse one that does not fit the table."""
    storage.keep(location for location, _ in staged)
    schema = metadata.schema()
    plan, paths = compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)

    def describe(each: Staged) -> DataFile | None:
        location, values = each
        file = io.new_input(location)
        with file.open() as stream:
            footer = pq.read_metadata(stream)
        if not footer.num_rows:
            return None
        _require_written_as(name, footer.schema.to_arrow_schema(), metadata)
        _require_filled(name, footer, schema)
        statistics = data_file_statistics_from_parquet_metadata(footer, plan, paths)
        found = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=values,
            file_size_in_bytes=len(file),
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        found.spec_id = metadata.default_spec_id  # manifests do not store it per file, only once
        return found

    with ThreadPoolExecutor(READERS) as pool:
        return [file for file in pool.map(describe, staged) if file is not None]


def _require_written_as(name: TableName, written: pa.Schema, metadata: TableMetadata) -> None:
    """Make sure that a file has every column under its field id: without ids no reader finds them."""
    found = {field.name: _id(field) for field in written}
    for field in schema_to_pyarrow(metadata.schema()):
        if found.get(field.name) != _id(field):
            raise TypeDiffers(
                f"a staged file of {name} has {field.name!r} not as field {_id(field)}; stage the rows again"
            )


def _require_filled(name: TableName, footer: Any, schema: Schema) -> None:
    """Refuse NULL in required columns, by the counts in the file's footer."""
    places = {footer.schema.column(at).path: at for at in range(len(footer.schema))}
    for field in schema.fields:
        place = places.get(field.name)
        if not field.required or place is None:
            continue
        for group in range(footer.num_row_groups):
            counted = footer.row_group(group).column(place).statistics
            if counted is not None and counted.has_null_count:
                require_no_null(name, field.name, counted.null_count)


def _id(field: pa.Field) -> int | None:
    said = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if said is None else int(said)
