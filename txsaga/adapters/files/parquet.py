"""
Rows as part files of a directory of Parquet, written where nobody looks.

They lie in the staging folder of a branch and get their names with its decision. Nothing here decides; if it never
runs, or stops halfway, what was written goes with the branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from txsaga.adapters.files.complete import files_below
from txsaga.errors import ConfigError
from txsaga.errors.lake import ColumnsDiffer, FormatRefused, LakeMissing, TypeDiffers

CODEC = "zstd"


def write(rows: Any, place: Path, partitions: Sequence[str]) -> None:
    """Write rows as a directory of Parquet: an Arrow table, batch or reader, or a Spark DataFrame."""
    if type(rows).__module__.partition(".")[0] == "pyspark":
        _write_frame(rows, place, partitions)
        return
    try:
        import pyarrow as pa
        from pyarrow import dataset
    except ImportError as missing:
        raise LakeMissing(f"rows need Arrow: pip install 'txsaga[lake]' ({missing})") from missing
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise ConfigError(f"{type(rows).__name__} can't be appended; give an Arrow table or reader, or a DataFrame")
    _require_columns(partitions, rows.schema.names)
    dataset.write_dataset(
        rows,
        place,
        format="parquet",
        partitioning=list(partitions) or None,
        partitioning_flavor="hive" if partitions else None,
        file_options=dataset.ParquetFileFormat().make_write_options(compression=CODEC),
        use_threads=False,  # threads of a parent are not in its forked child
    )


def _write_frame(frame: Any, place: Path, partitions: Sequence[str]) -> None:
    if frame.isStreaming:
        raise FormatRefused("the rows are a stream; append each batch of it, with foreachBatch")
    _require_columns(partitions, frame.columns)
    writer = frame.write.mode("errorifexists").option("compression", CODEC)
    (writer.partitionBy(*partitions) if partitions else writer).parquet(place.as_uri())


def _require_columns(partitions: Sequence[str], columns: Sequence[str]) -> None:
    if missing := [each for each in partitions if each not in columns]:
        raise ColumnsDiffer(f"rows that are parted by {missing[0]!r} need that column; they have {', '.join(columns)}")
    if partitions and len(partitions) == len(columns):
        raise ColumnsDiffer("rows need a column besides those they are parted by; nothing would be in their files")


def written(place: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a place that hold rows, and how many."""
    from pyarrow import parquet

    for path in files_below(place):
        count: int = parquet.read_metadata(path).num_rows
        if count:
            yield path, count


def require_like(fresh: Path, place: Path, directory: Path) -> None:
    """Refuse rows that differ from what is in a directory: no reader could take both."""
    there = next(files_below(directory), None)
    if there is None:
        return
    from pyarrow import parquet

    old, new = parquet.read_schema(there), parquet.read_schema(fresh)
    parted, parts = _parted(there, directory), _parted(fresh, place)
    if set(old.names) != set(new.names) or parted != parts:
        has, have = ", ".join([*old.names, *parted]), ", ".join([*new.names, *parts])
        raise ColumnsDiffer(f"directory {directory.name!r} has columns {has}, parted by {parted}; the rows have {have}")
    for field in new:
        if field.type != (wanted := old.field(field.name).type):
            raise TypeDiffers(f"column {field.name!r} of directory {directory.name!r} is {wanted}; cast it")


def _parted(path: Path, below: Path) -> list[str]:
    return [each.partition("=")[0] for each in path.relative_to(below).parent.parts]
