"""
Arrow tables as rows of a staging table, written by one COPY in one database transaction.

If the COPY fails halfway, no row is stored. This is a module of its own because it needs PyArrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
import pyarrow as pa

from txsaga.errors import ConfigError
from txsaga.lake.home_rows_store import Access, quoted
from txsaga.store.connection import transaction

PIECE = 10_000


def columns(rows: Any) -> list[str]:
    """Return the columns of an Arrow table, batch or reader."""
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise ConfigError(f"{type(rows).__name__} has no rows; give an Arrow table, batch or reader")
    return list(rows.schema.names)


def write(rows: Any, staging: str, number: str, access: Access) -> None:
    """Write rows, each with a number, into an existing table."""
    names = ", ".join(map(quoted, [*rows.schema.names, number]))
    numbers = count()
    with transaction(access.engine) as connection:
        connection.begin()  # the driver's own COPY starts no transaction that SQLAlchemy would commit
        raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
        with raw.cursor() as cursor, cursor.copy(f"COPY {staging} ({names}) FROM STDIN".encode()) as copy:
            for batch in pieces(rows):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row((*row, next(numbers)))


def pieces(rows: Any) -> Iterator[pa.RecordBatch]:
    """Split rows into batches that stay small as Python values too."""
    given = rows.to_batches() if isinstance(rows, pa.Table) else rows
    for batch in [given] if isinstance(given, pa.RecordBatch) else given:
        yield from (batch.slice(start, PIECE) for start in range(0, batch.num_rows, PIECE))
