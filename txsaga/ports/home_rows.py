"""Rows of the home database's own tables: what stages them beside their table, before a decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txsaga.model.home_rows import RowsWay, RowsWrite


class HomeRows(Protocol):
    """The tables of the home database that are not ours."""

    def stage(self, table: str, rows: object, transaction: str, way: RowsWay) -> RowsWrite:
        """Write rows into a new table beside their own, and seal it: nobody adds to it any more.

        One clear error for rows that don't fit; then the staging table is gone, or collected later.
        """

    def collect(self, *, dry_run: bool = False) -> Sequence[str]:
        """Drop what was staged and will never be placed; return the names."""
