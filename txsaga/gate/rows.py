"""
Hand rows to a gate: table files are read in place, anything else is written as one Parquet file.

Messages become columns: key, tag, body, and the fields of bodies that are JSON objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from txsaga.core.message import Message
from txsaga.errors import ConfigError
from txsaga.lake.gates import Subject

KINDS = "give an Arrow table, a pandas or Spark DataFrame, mappings, or messages"


def written(subject: Subject, folder: Path) -> dict[str, object]:
    """Return where the rows are stored, after writing them to a file if they are only in memory."""
    if subject.rows is None:
        return {"files": list(subject.files), "columns": list(subject.columns)}
    table = as_arrow(subject.rows, subject.about)
    import pyarrow.parquet as pq

    path = folder / "rows.parquet"
    pq.write_table(table, path)
    return {"files": [str(path)], "columns": table.column_names}


def as_arrow(rows: Any, about: str) -> Any:
    """Return rows as an Arrow table."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    if hasattr(rows, "to_feather"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise ConfigError(f"{type(rows).__name__} can't be judged as {about}; {KINDS}")
    listed = [_mapping(each, about) for each in rows]
    names = dict.fromkeys(name for each in listed for name in each)
    return pa.table({name: [each.get(name) for each in listed] for name in names})


def _mapping(row: Any, about: str) -> Mapping[str, object]:
    if isinstance(row, Message):
        return _columns(row)
    if hasattr(row, "_mapping"):
        return dict(row._mapping)
    if isinstance(row, Mapping):
        return row
    raise ConfigError(f"{type(row).__name__} can't be judged as a row of {about}; {KINDS}")


def _columns(message: Message) -> Mapping[str, object]:
    columns: dict[str, object] = {"key": message.key, "tag": message.tag, "body": message.body.decode(errors="replace")}
    try:
        said = json.loads(message.body)
    except ValueError:
        return columns
    return {**said, **columns} if isinstance(said, dict) else columns
