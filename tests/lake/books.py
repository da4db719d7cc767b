"""Books in tables: what tests of tables write and read."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from txsaga.broker import Broker
from txsaga.core.decision import LocalState
from txsaga.lake.opening import LakeOpener

LEDGER, POSTING = "bank.ledger", "bank.posting"
COLUMNS = {"id": "long not null", "day": "date", "amount": "decimal(12,2)", "note": "string"}
MONDAY, TUESDAY = date(2025, 3, 3), date(2025, 3, 4)


def rows(*entries: Mapping[str, Any] | int, day: date | None = MONDAY) -> pa.Table:
    """Lay out entries, or entries of these numbers."""
    full = [{"id": each} if isinstance(each, int) else each for each in entries]
    types = {"id": pa.int64(), "day": pa.date32(), "amount": pa.decimal128(12, 2), "note": pa.string()}
    columns = {
        "id": [each["id"] for each in full],
        "day": [each.get("day", day) for each in full],
        "amount": [each.get("amount") for each in full],
        "note": [each.get("note", "") for each in full],
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


class Books:
    """One broker and the tables that it knows."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.answer = LocalState.ROLLBACK
        self.producer = broker.producer("bank", checker=lambda question: self.answer)

    @property
    def lake(self) -> LakeOpener:
        """The opened lake."""
        return self.broker.kernel.tables

    def create(self, *names: str, partitions: Sequence[str] = ("day",)) -> None:
        """Create tables with nothing in them."""
        with self.producer.transaction() as tx:
            for name in names or (LEDGER,):
                tx.table(name).create(COLUMNS, partitions=partitions)

    def append(self, *ids: int, day: date | None = MONDAY, table: str = LEDGER) -> None:
        """Append in a transaction of its own."""
        with self.producer.transaction() as tx:
            tx.table(table).append(rows(*ids, day=day))

    def table(self, name: str = LEDGER) -> Table:
        """Read a table as anybody with PyIceberg would."""
        return self.lake.catalog.load_table(name)

    def ids(self, name: str = LEDGER) -> list[int]:
        """Return the ids that are visible."""
        return sorted(self.table(name).scan().to_arrow().column("id").to_pylist())

    def is_there(self, name: str) -> bool:
        """Tell whether there is such a table."""
        return bool(self.lake.catalog.table_exists(name))
