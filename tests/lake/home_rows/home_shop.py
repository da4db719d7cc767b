"""A shop whose tables lie in the home database, beside the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from tests.lake.books import Books
from tests.services.databases import fresh_name
from txsaga.lake import home_rows_store
from txsaga.lake.home_rows import RowsMode, RowsWay, RowsWrite
from txsaga.store.connection import transaction
from txsaga.store.store import Store

TABLES = """
CREATE TABLE {s}.sale (id int PRIMARY KEY, cents int NOT NULL CHECK (cents >= 0), note text DEFAULT 'none',
                       number int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE {s}.price (id int PRIMARY KEY, cents int NOT NULL);
CREATE TABLE {s}.visit (id int, day date NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
INSERT INTO {s}.price VALUES (1, 100), (2, 200);
"""


class Shop:
    """Tables of somebody else's in the home database."""

    def __init__(self, books: Books) -> None:
        self.name, self._store = fresh_name("shop"), books.broker.kernel.store
        assert isinstance(self._store, Store)

    @contextmanager
    def open(self) -> Iterator[Connection]:
        assert isinstance(self._store, Store)
        with transaction(self._store.engine) as connection:
            yield connection

    def run(self, sql: str) -> list[Any]:
        with self.open() as connection:
            found = connection.execute(text(sql.format(s=self.name)))
            return list(found) if found.returns_rows else []

    def ids(self, table: str) -> list[int]:
        return [id for (id,) in self.run(f"SELECT id FROM {{s}}.{table} ORDER BY id")]

    def staged(self) -> list[str]:
        named = "SELECT relname FROM pg_class WHERE relnamespace = '{s}'::regnamespace AND relkind = 'r'"
        return [name for (name,) in self.run(named) if name.startswith(home_rows_store.PREFIX)]


@pytest.fixture
def shop(books: Books) -> Iterator[Shop]:
    """Give a shop whose tables lie in the home database."""
    made = Shop(books)
    made.run("CREATE SCHEMA {s};" + TABLES)
    yield made
    made.run("DROP SCHEMA {s} CASCADE")


def sales(*ids: int, cents: int = 5) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "cents": pa.array([cents] * len(ids), pa.int32())})


def told(books: Books) -> int:
    with books.broker.cut() as cut:
        return sum(cut.heads.get("booked", ()))


def made(shop: Shop, way: RowsWay, table: str = "sale") -> RowsWrite:
    with shop.open() as connection:
        target = home_rows_store.find(connection, f"{shop.name}.{table}", "txsaga")
        return home_rows_store.make(connection, target, ["id", "cents"], "none", way)


INSERT = RowsWay(RowsMode.INSERT)
