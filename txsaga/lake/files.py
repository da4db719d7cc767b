"""
Data files: Parquet written from Arrow, and the footers of any Parquet files.

Spark's files and ours are read back the same way, so that statistics and sizes are those of the stored files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from txsaga.errors import TypeDiffers
from txsaga.lake.columns import fitted, require_columns, require_no_null
from txsaga.lake.partition_values import split
from txsaga.lake.storage import Storage
from txsaga.lake.table import TableName

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
    found = dict(_ids(written))
    for field in schema_to_pyarrow(metadata.schema()):
        number = int(field.metadata[b"PARQUET:field_id"])
        if found.get(field.name) != number:
            raise TypeDiffers(f"a staged file of {name} has {field.name!r} not as field {number}; stage the rows anew")


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


def _ids(schema: pa.Schema) -> Iterable[tuple[str, int]]:
    for field in schema:
        said = (field.metadata or {}).get(b"PARQUET:field_id")
        if said is not None:
            yield field.name, int(said)
