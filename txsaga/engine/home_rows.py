"""
Rows for tables of the home database inside a transaction: staged at once, in their place with its decision.

    tx.rows("shop.sale").insert(frame)
    tx.rows("shop.sale").attach(frame, "sale_march", "FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')")
    tx.rows("shop.price").replace(frame)

The decision does it in its own commit, whoever decides (R2), as long as that is the login that staged. If a writer
stops before the record is stored, its staging table is nobody's, and is collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txsaga.model.home_rows import RowsMode, RowsWay

if TYPE_CHECKING:
    from txsaga.engine.table import TableWrites


class HomeTable:
    """A table of the home database, as a transaction writes to it."""

    def __init__(self, writes: TableWrites, name: str) -> None:
        self._writes, self.name = writes, name

    def insert(self, rows: object) -> int:
        """Add rows, a DataFrame of Spark or an Arrow table or reader; return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.INSERT))

    def attach(self, rows: object, partition: str, bounds: str) -> int:
        """Add rows as a partition of this name and these bounds, `FOR VALUES …` as SQL says them; return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.ATTACH, partition, bounds))

    def replace(self, rows: object) -> int:
        """Put a new table of these rows in the place of the whole one; return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.REPLACE))
