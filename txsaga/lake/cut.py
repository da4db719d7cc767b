"""
A cut: a consistent snapshot of table pointers, queue heads and home rows at ONE moment, which is a tick (R7).

A decision changes rows and pointers at once, and the log follows with the next tick. A cut ticks first and reads
everything in that same snapshot, so it sees all of a decision or none of it. Foreign databases are never part of a cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from txsaga.core.arguments import list_of
from txsaga.errors import ConfigError, UnknownTable, UnknownTopic
from txsaga.lake.table import TableName

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from txsaga.lake.opening import LakeOpener


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A consistent read handle: heads by topic and queue, pointers by table, and the snapshot of the home rows.

    Heads and tables stay readable after it is closed; only the home rows need its connection.
    """

    tick: int
    heads: Mapping[str, tuple[int, ...]]
    home: Connection
    pointers: Mapping[TableName, str] = field(default_factory=dict)
    reader: LakeOpener | None = None

    @property
    def tables(self) -> Mapping[str, str]:
        """The location of each table's metadata, by table name."""
        return {str(name): location for name, location in self.pointers.items()}

    def snapshot(self, table: str) -> int | None:
        """Return the snapshot of a table; None if it has none yet."""
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

    def _reader(self) -> LakeOpener:
        if self.reader is None:
            raise ConfigError("this cut was made without tables; name them: broker.cut(tables=[…])")
        return self.reader


def names_of(reader: LakeOpener, tables: Iterable[str | TableName]) -> Sequence[TableName]:
    """Parse the names of tables."""
    said = list_of(tables, "tables", "give a list of names")
    return [each if isinstance(each, TableName) else reader.name(each) for each in said]


def chosen(cut: Cut, tables: Sequence[TableName], topics: Iterable[str] | None, reader: LakeOpener) -> Cut:
    """Reduce a cut to the requested tables and topics; a missing one is an error, not a gap."""
    for name in tables:
        if name not in cut.pointers:
            raise UnknownTable(str(name))
    if tables:
        cut = replace(cut, reader=reader)
    if topics is None:
        return cut
    heads = {}
    for topic in list_of(topics, "topics", "give a list of names"):
        if topic not in cut.heads:
            raise UnknownTopic(topic)
        heads[topic] = cut.heads[topic]
    return replace(cut, heads=heads)
