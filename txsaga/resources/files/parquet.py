"""
Rows as part files of a Parquet directory, written out of readers' sight.

They are in the staging folder of a branch and get their names with its decision. Nothing is decided here; if this never
runs, or stops halfway, what was written is removed with the branch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga.errors import ColumnsDiffer, ConfigError, LakeMissing, StoreUnavailable, TypeDiffers
from txsaga.resources.files import layout as manifest
from txsaga.resources.files.layout import DONE, MANIFEST, Layout

if TYPE_CHECKING:
    from pyarrow import Schema


TRIES = 1000
"""If a set is completed while a directory is listed, it is listed again, at most this often."""
SUFFIX = ".parquet"


def complete(layout: Layout, directory: str) -> list[Path]:
    """Return the files of a directory, without those of incomplete sets."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # a set was completed while it was read
            before = _ends(layout)
            unfinished = _unfinished(layout)
            found = [path for path in files_below(layout.target(directory)) if not _is_of(unfinished, layout, path)]
            if _ends(layout) == before:
                return found
    raise StoreUnavailable(f"files were added to {layout.root} while it was listed; list it again")


def _ends(layout: Layout) -> set[str]:
    """Return which sets are voted for, and which are complete: a set that changes meanwhile may be seen in part."""
    return {str(path) for pattern in (f"*/*/{MANIFEST}", f"*/*{DONE}") for path in layout.own.glob(pattern)}


def _unfinished(layout: Layout) -> dict[str, int]:
    found = [manifest.read(layout.manifest(branch)) for branch in layout.prepared("*")]
    return {each.target: each.number for entries in found for each in entries or ()}


def _is_of(unfinished: dict[str, int], layout: Layout, path: Path) -> bool:
    """Return whether an incomplete set placed a file; a file that the set has yet to replace stays listed."""
    number = unfinished.get(str(path.relative_to(layout.root)))
    there = None if number is None else manifest.stamp(path)
    return there is not None and there[0] == number


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the Parquet files of a directory as engines see them: names that begin with '_' or '.' are hidden."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(each for each in folders if each[0] not in "_.")
        yield from (Path(folder, each) for each in sorted(names) if each[0] not in "_." and each.endswith(SUFFIX))


CODEC = "zstd"
SPARK = "txsaga.spark.folders"


class ParquetShape(NamedTuple):
    """The schema and partitions common to the files of a directory."""

    schema: Schema
    parts: list[str]


def write(rows: Any, place: Path, partitions: Sequence[str]) -> list[tuple[Path, int]]:
    """Write rows as a Parquet directory; return its files that have rows, and how many.

    They are an Arrow table, batch or reader, or a Spark DataFrame.
    """
    if type(rows).__module__.partition(".")[0] == "pyspark":
        wrote = import_module(SPARK).write(rows, place, partitions)
        return _all_of(wrote, list(_written(place)), place.parent)
    _write_arrow(rows, place, partitions)
    return list(_written(place))


def _write_arrow(rows: Any, place: Path, partitions: Sequence[str]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import dataset
    except ImportError as missing:
        raise LakeMissing(f"rows need Arrow: {LakeMissing.INSTALL} ({missing})") from missing
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise ConfigError(f"{type(rows).__name__} can't be appended; give an Arrow table or reader, or a DataFrame")
    require_columns(partitions, rows.schema.names)
    dataset.write_dataset(
        rows,
        place,
        format="parquet",
        partitioning=list(partitions) or None,
        partitioning_flavor="hive" if partitions else None,
        file_options=dataset.ParquetFileFormat().make_write_options(compression=CODEC),
        use_threads=False,  # a forked child does not have its parent's threads
    )


def _all_of(wrote: int, found: list[tuple[Path, int]], folder: Path) -> list[tuple[Path, int]]:
    """Refuse an incomplete result: executors with a folder of their own leave rows on their machines."""
    if wrote != (there := sum(count for _, count in found)):
        raise ConfigError(
            f"Spark wrote {wrote} rows, and {there} of them are here: its executors must reach {folder} as the same "
            "folder, under the same path"
        )
    return found


def require_columns(partitions: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse partitions that no reader could read, or that these rows can't have."""
    if missing := [each for each in partitions if each not in columns]:
        raise ColumnsDiffer(f"rows partitioned by {missing[0]!r} need that column; they have {', '.join(columns)}")
    if hidden := [each for each in partitions if each.startswith(("_", "."))]:
        raise ColumnsDiffer(
            f"readers skip folders like '{hidden[0]}=…'; rename {hidden[0]!r}, or partition by another column"
        )
    if partitions and len(partitions) == len(columns):
        raise ColumnsDiffer("rows need a column that is not a partition column; their files would be empty otherwise")


def _written(place: Path) -> Iterator[tuple[Path, int]]:
    from pyarrow import parquet

    for path in files_below(place):
        count: int = parquet.read_metadata(path).num_rows
        if count:
            yield path, count


def shape(directory: Path) -> ParquetShape | None:
    """Return the shape of a directory, from its first file; None if it has none."""
    path = next(files_below(directory), None)
    return None if path is None else shape_of(path, directory)


def shape_of(path: Path, below: Path) -> ParquetShape:
    """Return the shape of a file of a directory."""
    from pyarrow import parquet

    parts = [each.partition("=")[0] for each in path.relative_to(below).parent.parts]
    return ParquetShape(parquet.read_schema(path), parts)


def require_like(new: ParquetShape, old: ParquetShape | None, name: str) -> None:
    """Refuse rows that differ from those of a directory: no reader could read both."""
    if old is None:
        return
    if set(old.schema.names) != set(new.schema.names) or old.parts != new.parts:
        has, have = (", ".join([*each.schema.names, *each.parts]) for each in (old, new))
        parts = ", ".join(old.parts) or "nothing"
        raise ColumnsDiffer(f"directory {name!r} has columns {has}, partitioned by {parts}; the rows have {have}")
    for field in new.schema:
        if field.type != (wanted := old.schema.field(field.name).type):
            raise TypeDiffers(f"column {field.name!r} of directory {name!r} is {wanted}; cast it")
