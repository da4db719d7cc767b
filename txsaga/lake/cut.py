"""
A cut: table pointers, queue heads and home rows of ONE moment that is itself a tick (R7).

Decisions move rows and pointers at once, the log follows by a tick; a cut ticks first and reads everything
in that same snapshot, so it sees all of a decision or none of it. Foreign databases are never inside a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from txsaga.errors import ConfigError
from txsaga.lake.table import TableName

if TYPE_CHECKING:
    from sqlalchemy import Connection


class TableReader(Protocol):
    """Reads tables as some metadata of theirs tells them."""

    def name(self, said: str) -> TableName:
        """Read a name."""

    def scan(self, location: str, options: Mapping[str, object]) -> Any:  # PyIceberg's
        """Open a scan of what the metadata of a table tells."""

    def snapshot(self, location: str) -> int | None:
        """Return the newest snapshot that the metadata of a table tells of."""

    def frames(self, spark: object, pointers: Mapping[TableName, str]) -> Any:  # Spark's
        """Return what makes DataFrames of tables as their metadata tells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A consistent read handle: heads by topic and queue, pointers by table, and the snapshot of the home rows.

    What it read stays readable behind it; only the home rows go with their connection.
    """

    tick: int
    heads: Mapping[str, tuple[int, ...]]
    home: Connection | None = None
    pointers: Mapping[TableName, str] = field(default_factory=dict)
    reader: TableReader | None = None

    @property
    def tables(self) -> Mapping[str, str]:
        """Where the metadata of each table lies, by its name."""
        return {str(name): location for name, location in self.pointers.items()}

    def snapshot(self, table: str) -> int | None:
        """Return the snapshot of a table; None while it has none."""
        return self._reader().snapshot(self._pointer(table))

    def scan(self, table: str, **options: object) -> Any:  # PyIceberg's
        """Open a scan of a table, with the options of PyIceberg: `cut.scan("bank.ledger").to_arrow()`."""
        return self._reader().scan(self._pointer(table), options)

    def spark(self, spark: object) -> Any:  # Spark's
        """Return the tables as DataFrames: `cut.spark(spark).table("bank.ledger")`."""
        return self._reader().frames(spark, self.pointers)

    def _pointer(self, table: str) -> str:
        name = self._reader().name(table)
        if name not in self.pointers:
            raise ConfigError(f"this cut was made without table {table!r}; name it: broker.cut(tables=[{table!r}])")
        return self.pointers[name]

    def _reader(self) -> TableReader:
        if self.reader is None:
            raise ConfigError("this cut was made without tables; name them: broker.cut(tables=[…])")
        return self.reader
