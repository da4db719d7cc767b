"""
Rows for tables of the home database: staged in a table of their own, moved to their target by the decision.

A `RowsWrite` records everything that the decision needs without the process that staged the rows. If it were
incomplete, only that process could commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple


class RowsMode(StrEnum):
    """How rows are added to a table."""

    INSERT = "insert"
    ATTACH = "attach"
    REPLACE = "replace"


class RowsWay(NamedTuple):
    """How rows are added to a table, and as which partition."""

    mode: RowsMode
    partition: str = ""
    bounds: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWrite:
    """Staged rows: a sealed table that no reader uses, and how to publish it."""

    transaction: str
    target: str
    """The SQL name, with schema and quotes."""
    staging: str
    mode: RowsMode
    columns: tuple[str, ...]
    partition: str = ""
    bounds: str = ""
    rows: int = 0

    def payload(self) -> dict[str, object]:
        """Return the record as JSON."""
        return {**asdict(self), "mode": self.mode.value, "columns": list(self.columns)}

    def mark(self) -> dict[str, object]:
        """Return what the comment of the staging table stores, before there are rows."""
        return {key: value for key, value in self.payload().items() if key != "rows"}

    @classmethod
    def read(cls, payload: Mapping[str, object]) -> RowsWrite:
        """Read the result of `payload`."""
        mode, columns = payload["mode"], payload["columns"]
        assert isinstance(mode, str) and isinstance(columns, list)
        values: dict[str, object] = {**payload, "mode": RowsMode(mode), "columns": tuple(columns)}
        return cls(**values)  # type: ignore[arg-type]  # written by this program
