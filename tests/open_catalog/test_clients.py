"""
PyIceberg and DuckDB as published, against `txsaga catalog`; Spark is in tests/spark, Java's client is Iceberg's kit.

Go's client is in test_go_client.py.
DuckDB's extensions come from packages, signed by DuckDB: `INSTALL iceberg` needs its extension server.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import StringType

from tests.lake.books import LEDGER, POSTING, Books
from tests.open_catalog.conftest import Serve
from tests.open_catalog.guide import shown
from tests.services.absent import ci_or_skip
from txsaga.catalog.access import Clients

pytestmark = pytest.mark.postgres
ROW = pa.schema([pa.field("id", pa.int64())])
DUCKDB = ("duckdb", "duckdb_extension_avro", "duckdb_extension_httpfs", "duckdb_extension_iceberg")
OPEN = "TYPE iceberg, AUTHORIZATION_TYPE none, ACCESS_DELEGATION_MODE none, STAGE_CREATE_TABLES false"
"""Without the last, DuckDB expects a folder that it does not make, where a warehouse is one on this machine."""


def arrow(*ids: int) -> pa.Table:
    """Lay out rows."""
    return pa.table({"id": pa.array(ids, pa.int64())}, schema=ROW)


def scanned(catalog: RestCatalog, name: str, **options: Any) -> list[int]:
    """Return the ids that PyIceberg reads."""
    return sorted(catalog.load_table(name).scan(**options).to_arrow()["id"].to_pylist())


@pytest.fixture
def catalog(catalog_server: str) -> Iterator[RestCatalog]:
    """Give PyIceberg's client."""
    opened = RestCatalog("home", uri=catalog_server)
    opened.create_namespace("bank")
    yield opened
    opened.close()


@pytest.fixture
def duckdb() -> Iterator[Any]:
    """Give a connection of DuckDB with its extension."""
    if not all(map(find_spec, DUCKDB)):
        ci_or_skip("DuckDB", "make venv")
    module, *extensions = map(importlib.import_module, DUCKDB)
    with module.connect() as connection:
        for extension in extensions:
            (file,) = Path(extension.__file__ or "").parent.rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        yield connection


@pytest.fixture
def duck(duckdb: Any, catalog_server: str, catalog: RestCatalog) -> Any:
    """Give a connection of DuckDB to the catalog."""
    duckdb.execute(f"ATTACH '' AS home (ENDPOINT '{catalog_server}', {OPEN})")
    return duckdb


def read(duck: Any, query: str) -> list[Any]:
    """Return rows, or what is in their only column."""
    found = duck.execute(query).fetchall()
    return sorted(row[0] if len(row) == 1 else row for row in found)


class TestPyIceberg:
    """Its client of REST catalogs."""

    def test_it_makes_writes_and_drops_a_table(self, catalog: RestCatalog, books: Books) -> None:
        table = catalog.create_table("bank.sale", ROW)
        table.append(arrow(1, 2, 3))
        table.delete("id = 2")
        assert books.ids("bank.sale") == [1, 3]
        table.overwrite(arrow(4, 5))
        table.upsert(arrow(5, 6), join_cols=["id"])
        assert books.ids("bank.sale") == scanned(catalog, "bank.sale") == [4, 5, 6]
        catalog.rename_table("bank.sale", "bank.sold")
        assert catalog.list_tables("bank") == [("bank", "sold")]
        catalog.purge_table("bank.sold")
        catalog.drop_namespace("bank")
        with pytest.raises(NoSuchTableError):
            catalog.load_table("bank.sold")
        assert not books.is_there("bank.sold")

    def test_it_changes_columns_and_reads_branches_tags_and_the_past(self, catalog: RestCatalog, books: Books) -> None:
        table = catalog.create_table("bank.sale", ROW)
        table.append(arrow(1))
        first = table.current_snapshot()
        assert first is not None
        with table.manage_snapshots() as snapshots:
            snapshots.create_tag(first.snapshot_id, "first").create_branch(first.snapshot_id, "audit")
        table.append(arrow(2), branch="audit")
        assert books.ids("bank.sale") == [1]
        audit = table.snapshot_by_name("audit")
        assert audit is not None
        assert scanned(catalog, "bank.sale", snapshot_id=audit.snapshot_id) == [1, 2]
        with table.transaction() as changes:
            with changes.update_schema() as schema:
                schema.add_column("note", StringType())
            changes.set_properties(kept="yes")
        table.append(pa.table({"id": [3], "note": ["x"]}))
        assert books.ids("bank.sale") == [1, 3]
        assert scanned(catalog, "bank.sale", snapshot_id=first.snapshot_id) == [1]
        found = catalog.load_table("bank.sale")
        assert (found.properties["kept"], [field.name for field in found.schema().fields]) == ("yes", ["id", "note"])
        assert sorted(found.refs()) == ["audit", "first", "main"]


class TestDuckDB:
    """Its extension `iceberg`."""

    def test_it_makes_changes_and_drops_a_table(self, duck: Any, books: Books) -> None:
        duck.execute("CREATE TABLE home.bank.sale (id BIGINT, day DATE) PARTITIONED BY (day)")
        duck.execute("INSERT INTO home.bank.sale SELECT range, DATE '2025-03-03' FROM range(1, 5)")
        [first] = read(duck, "SELECT snapshot_id FROM iceberg_snapshots(home.bank.sale)")
        duck.execute("UPDATE home.bank.sale SET day = DATE '2025-03-04' WHERE id = 1")
        duck.execute("DELETE FROM home.bank.sale WHERE id = 2")
        change = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (u.id)"
        duck.execute(f"MERGE INTO home.bank.sale USING (VALUES (3), (9)) AS u (id) ON sale.id = u.id {change}")
        assert books.ids("bank.sale") == read(duck, "SELECT id FROM home.bank.sale") == [1, 4, 9]
        duck.execute("ALTER TABLE home.bank.sale ADD COLUMN note VARCHAR")
        assert read(duck, f"SELECT id FROM home.bank.sale AT (VERSION => {first})") == [1, 2, 3, 4]
        duck.execute("CREATE TABLE home.bank.copy AS SELECT id FROM home.bank.sale")
        duck.execute("ALTER TABLE home.bank.copy RENAME TO kept")
        assert books.ids("bank.kept") == [1, 4, 9]
        duck.execute("DROP TABLE home.bank.sale")
        assert not books.is_there("bank.sale")

    def test_its_transaction_is_committed_to_all_tables_or_to_none(self, duck: Any, books: Books) -> None:
        books.create(LEDGER, POSTING)
        duck.execute("BEGIN")
        for name in (POSTING, LEDGER):
            duck.execute(f"INSERT INTO home.{name} (id) VALUES (1)")
            assert books.ids(name) == []
        duck.execute("COMMIT")
        assert (books.ids(), books.ids(POSTING)) == ([1], [1])
        for moved, other in ((LEDGER, POSTING), (POSTING, LEDGER)):
            before = books.ids(other)
            duck.execute(f"BEGIN; DELETE FROM home.{LEDGER} WHERE id = 1; DELETE FROM home.{POSTING} WHERE id = 1")
            books.append(3, table=moved)
            with pytest.raises(Exception, match="409"):
                duck.execute("COMMIT")
            assert (books.ids(moved), books.ids(other)) == ([1, 3], before)

    def test_its_commit_is_one_with_the_messages_of_a_transaction(
        self, duck: Any, books: Books, catalog_server: str
    ) -> None:
        books.create()
        with books.producer.transaction() as tx:
            tx.send("posted", b"1")
            headers = f"EXTRA_HTTP_HEADERS MAP {{'X-Txsaga-Transaction': '{tx.token()}'}}"
            duck.execute(f"ATTACH '' AS joined (ENDPOINT '{catalog_server}', {OPEN}, {headers})")
            duck.execute(f"INSERT INTO joined.{LEDGER} (id) VALUES (1)")
            assert read(duck, f"SELECT id FROM joined.{LEDGER}") == [1]
            assert books.ids() == []
        assert books.ids() == [1]


def test_the_lines_of_the_guide_run_in_duckdb(duckdb: Any, serve: Serve, books: Books, tmp_path: Path) -> None:
    (tmp_path / "clients").write_text(shown("# ID:SECRET"))
    address = serve(Clients.read(tmp_path / "clients")).base_url
    duckdb.execute(shown("-- DuckDB").replace("http://127.0.0.1:8181", str(address).rstrip("/")))
    assert (books.ids("sales.orders"), books.ids("sales.items")) == ([1, 2], [2])


def test_clients_append_to_one_table_at_once(catalog: RestCatalog, duck: Any, books: Books) -> None:
    catalog.create_table("bank.sale", ROW).append(arrow(0))

    def by_duckdb() -> None:
        for each in (1, 2):
            duck.execute(f"INSERT INTO home.bank.sale VALUES ({each})")

    def by_pyiceberg() -> None:
        for each in (3, 4):
            catalog.load_table("bank.sale").append(arrow(each))

    with ThreadPoolExecutor(2) as clients:
        for done in [clients.submit(by_duckdb), clients.submit(by_pyiceberg)]:
            done.result(60)
    assert books.ids("bank.sale") == [0, 1, 2, 3, 4]
