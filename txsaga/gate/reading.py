"""
Reading staged files in the gate's own process: into memory, or by Spark where they are too many rows for that.

Only the columns that the suite speaks of are read. Files of a table lie in folders that look like partitions; what
those names say is no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from txsaga.gate.suites import columns_of, needs_all_columns

MOST = 20_000_000
"""Rows that are read into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Rows as the engine of a suite takes them."""

    frame: Any
    engine: str
    count: Callable[[], int]


@contextmanager
def frame(question: Mapping[str, Any]) -> Iterator[Read]:
    """Open the rows of a question."""
    engine = question["engine"]
    if engine == "spark" or (engine == "auto" and (question["count"] or 0) > MOST):
        with _in_spark(question["files"]) as read:
            yield read
        return
    table = _table(question["files"], question["access"], _columns(question))
    rows = table.num_rows
    pandas = table.to_pandas(split_blocks=True, self_destruct=True)
    yield Read(frame=pandas, engine="pandas", count=lambda: rows)


def _columns(question: Mapping[str, Any]) -> list[str] | None:
    """Return the columns to read: one at least, or there would be no rows; None for all."""
    expectations: Sequence[Mapping[str, Any]] = question["expectations"]
    if needs_all_columns(expectations):
        return None
    return list(dict.fromkeys(column for each in expectations for column in columns_of(each))) or None


def _table(files: Sequence[str], access: Mapping[str, str], columns: list[str] | None) -> pa.Table:
    paths = [_local(each) for each in files]
    if all(path is not None for path in paths):
        found: pa.Table = ds.dataset([str(path) for path in paths], format="parquet").to_table(columns=columns)
        return found
    from pyiceberg.io import load_file_io

    tables = []
    for location in files:
        with load_file_io(dict(access), location).new_input(location).open() as stream:
            tables.append(pq.read_table(stream, columns=columns))
    return pa.concat_tables(tables)


def _local(location: str) -> str | None:
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return None if "://" in location else location


@contextmanager
def _in_spark(files: Sequence[str]) -> Iterator[Read]:
    from txsaga.spark import session

    spark = session(app="txsaga gate")
    rows = spark.read.option("recursiveFileLookup", "true").parquet(*files).persist()
    try:
        yield Read(frame=rows, engine="spark", count=rows.count)
    finally:
        rows.unpersist()
