"""
Rows for tables of the home database: staged in a table of their own, put in their place by the decision.

A `RowsWrite` is the record of it: everything that is needed without the process that staged them. If it were
incomplete, only its own process could commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class RowsMode(StrEnum):
    """How rows come to a table."""

    INSERT = "insert"
    ATTACH = "attach"
    REPLACE = "replace"


class RowsWay(NamedTuple):
    """How rows come to a table, and as what partition."""

    mode: RowsMode
    partition: str = ""
    bounds: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWrite:
    """Staged rows: a table that nobody reads, sealed, and what becomes of it."""

    transaction: str
    target: str
    """Its name as SQL says it, schema and quotes included."""
    staging: str
    mode: RowsMode
    columns: tuple[str, ...]
    partition: str = ""
    bounds: str = ""
    rows: int = 0

    def payload(self) -> dict[str, object]:
        """Write it as JSON keeps it."""
        return {**asdict(self), "mode": self.mode.value, "columns": list(self.columns)}

    def mark(self) -> dict[str, object]:
        """Return what the staging table itself says of it, before there are rows."""
        return {key: value for key, value in self.payload().items() if key != "rows"}

    @classmethod
    def read(cls, payload: Mapping[str, object]) -> RowsWrite:
        """Read what `payload` wrote."""
        mode, columns = payload["mode"], payload["columns"]
        assert isinstance(mode, str) and isinstance(columns, list)
        values: dict[str, object] = {**payload, "mode": RowsMode(mode), "columns": tuple(columns)}
        return cls(**values)  # type: ignore[arg-type]  # written by this program


class HomeRows(Protocol):
    """The tables of the home database that are not ours."""

    def stage(self, table: str, rows: object, transaction: str, way: RowsWay) -> RowsWrite:
        """Write rows into a new table beside their own, and seal it: nobody adds to it any more.

        One clear error for rows that don't fit; then the staging table is gone, or collected later.
        """

    def collect(self, *, dry_run: bool = False) -> Sequence[str]:
        """Drop what was staged and will never be placed; return the names."""
