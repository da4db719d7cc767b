"""Spark as published, with its REST catalog and without our code, against `txsaga catalog`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.lake.books import LEDGER, POSTING, Books
from tests.open_catalog import conftest
from tests.open_catalog.guide import shown
from tests.services.databases import fresh_name
from txsaga.catalog.access import Clients
from txsaga.catalog.cuts import KeptCuts
from txsaga.catalog.workspaces import Workspaces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres
HEADER = "header.X-Txsaga-Transaction"
Open = Callable[..., str]
books, catalog_server, serve = conftest.books, conftest.catalog_server, conftest.serve
"""On one store, under the default name of the catalog."""
FAR_FUTURE = "TIMESTAMP '2099-01-01 00:00:00'"
MERGE = """
MERGE INTO {table} t USING (SELECT * FROM VALUES (2, 'merged'), (9, 'new') AS u (id, note)) u ON t.id = u.id
 WHEN MATCHED THEN UPDATE SET note = u.note
 WHEN NOT MATCHED THEN INSERT (id, day, amount, note) VALUES (u.id, date'2025-03-04', 1, u.note)"""


@pytest.fixture
def open_rest(runtime: SparkSession, catalog_server: str) -> Open:
    """Give a way to open the catalog as one that this JVM has not seen; give its name."""

    def open(session: SparkSession = runtime, **settings: str) -> str:
        name = fresh_name("r")
        session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        for key, value in {"type": "rest", "uri": catalog_server, "cache-enabled": "false", **settings}.items():
            session.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        return name

    return open


def ids(spark: SparkSession, table: str, suffix: str = "") -> list[int]:
    """Return the ids that Spark reads."""
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {table} {suffix}").collect())


def test_spark_makes_changes_and_drops_a_table_as_the_guide_shows(
    runtime: SparkSession, books: Books, open_rest: Open
) -> None:
    catalog = open_rest()
    lines = shown("-- Spark").removeprefix("-- Spark").replace("home.", f"{catalog}.")
    for statement in filter(str.strip, lines.split(";")):
        runtime.sql(statement)
    name, table = "sales.old_orders", f"{catalog}.sales.old_orders"
    assert (books.ids(name), sorted(books.table(name).refs())) == ([1, 2], ["first", "main"])
    runtime.sql(f"SELECT id + 2 AS id, cents FROM {table}").writeTo(table).append()
    assert books.ids(name) == [1, 2, 3, 4]
    runtime.sql(f"INSERT OVERWRITE {table} SELECT id, cents FROM {table} WHERE id > 2")
    runtime.sql(f"UPDATE {table} SET cents = 7 WHERE id = 3")
    runtime.sql(f"DELETE FROM {table} WHERE id = 4")
    assert (books.ids(name), [row.cents for row in runtime.table(table).collect()]) == ([3], [7])
    with books.producer.transaction() as tx:
        tx.table(name).append(pa.table({"id": [5], "cents": [1]}))
    assert ids(runtime, table) == [3, 5]
    runtime.sql(f"DROP VIEW {catalog}.sales.large")
    runtime.sql(f"DROP TABLE {table} PURGE")
    runtime.sql(f"DROP NAMESPACE {catalog}.sales")
    assert not books.is_there(name)


def test_spark_changes_columns_branches_and_views(runtime: SparkSession, books: Books, open_rest: Open) -> None:
    books.create()
    books.append(1)
    catalog = open_rest()
    table = f"{catalog}.{LEDGER}"
    runtime.sql(f"ALTER TABLE {table} CREATE TAG first")
    runtime.sql(f"ALTER TABLE {table} ADD COLUMN place string")
    runtime.sql(f"ALTER TABLE {table} RENAME COLUMN note TO remark")
    runtime.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id)")
    runtime.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('kept' = 'yes')")
    runtime.sql(f"INSERT INTO {table} VALUES (2, date'2025-03-03', 1, 'b', 'here')")
    assert [field.name for field in books.table().schema().fields] == ["id", "day", "amount", "remark", "place"]
    assert books.table().properties["kept"] == "yes"
    runtime.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    runtime.sql(f"INSERT INTO {table}.branch_audit VALUES (3, date'2025-03-03', 1, 'c', 'there')")
    assert (books.ids(), ids(runtime, table, "VERSION AS OF 'audit'")) == ([1, 2], [1, 2, 3])
    runtime.sql(f"CALL {catalog}.system.fast_forward('{LEDGER}', 'main', 'audit')")
    assert (books.ids(), ids(runtime, table, "VERSION AS OF 'first'")) == ([1, 2, 3], [1])
    runtime.sql(f"ALTER TABLE {table} DROP BRANCH audit")
    assert sorted(books.table().refs()) == ["first", "main"]
    runtime.sql(f"CREATE VIEW {catalog}.bank.large AS SELECT id FROM {table} WHERE id > 1")
    assert ids(runtime, f"{catalog}.bank.large") == [2, 3]
    runtime.sql(f"DROP VIEW {catalog}.bank.large")


def test_spark_with_rights_in_one_namespace_writes_and_expires(
    runtime: SparkSession, serve: conftest.Serve, tmp_path: Path, open_rest: Open
) -> None:
    (tmp_path / "clients").write_text("loader:l create=sales.*\n")
    server = str(serve(Clients.read(tmp_path / "clients")).base_url)
    catalog = open_rest(uri=server, credential="loader:l", **{"oauth2-server-uri": f"{server}/v1/oauth/tokens"})
    runtime.sql(f"CREATE NAMESPACE {catalog}.sales")
    runtime.sql(f"CREATE TABLE {catalog}.sales.orders (id int) USING iceberg")
    for number in range(3):
        runtime.sql(f"INSERT INTO {catalog}.sales.orders VALUES ({number})")
    runtime.sql(
        f"CALL {catalog}.system.expire_snapshots(table => 'sales.orders', older_than => {FAR_FUTURE}, retain_last => 1)"
    )
    assert ids(runtime, f"{catalog}.sales.orders") == [0, 1, 2]


def test_sessions_write_to_one_table_at_once(runtime: SparkSession, books: Books, open_rest: Open) -> None:
    books.create()

    def write(number: int) -> None:
        session = runtime.newSession()
        table = f"{open_rest(session)}.{LEDGER}"
        for each in range(2):
            session.sql(f"INSERT INTO {table} VALUES ({10 * number + each}, date'2025-03-03', 1, 'x')")
        session.sql(f"UPDATE {table} SET note = 'y' WHERE id = {10 * number}")

    with ThreadPoolExecutor(2) as sessions:
        list(sessions.map(write, (1, 2)))
    assert books.ids() == [10, 11, 20, 21]
    notes = books.table().scan().to_arrow().to_pydict()
    assert dict(zip(notes["id"], notes["note"], strict=True)) == {10: "y", 11: "x", 20: "y", 21: "x"}


def test_what_spark_commits_in_a_transaction_is_one_with_its_messages(
    runtime: SparkSession, books: Books, open_rest: Open
) -> None:
    books.create(LEDGER, POSTING)
    books.append(1, 2)
    reader = open_rest()
    with books.producer.transaction() as tx:
        tx.send("posted", b"1")
        joined = open_rest(**{HEADER: tx.token()})
        runtime.sql(MERGE.format(table=f"{joined}.{LEDGER}"))
        runtime.sql(f"INSERT INTO {joined}.{POSTING} SELECT * FROM {joined}.{LEDGER}")
        assert ids(runtime, f"{joined}.{POSTING}") == [1, 2, 9]
        assert (ids(runtime, f"{reader}.{LEDGER}"), ids(runtime, f"{reader}.{POSTING}")) == ([1, 2], [])
    assert (ids(runtime, f"{reader}.{LEDGER}"), ids(runtime, f"{reader}.{POSTING}")) == ([1, 2, 9], [1, 2, 9])
    with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
        runtime.sql(f"DELETE FROM {open_rest(**{HEADER: tx.token()})}.{LEDGER} WHERE id = 1")
        raise ZeroDivisionError
    assert books.ids() == [1, 2, 9]


def test_spark_reads_a_cut_and_writes_to_a_workspace(runtime: SparkSession, books: Books, open_rest: Open) -> None:
    books.create()
    books.append(1)
    KeptCuts(books.broker).keep("monday", [LEDGER], lease=timedelta(days=1), who="anna")
    workspaces = Workspaces(books.broker)
    workspaces.create("april", [LEDGER], "anna")
    home, cut, april = open_rest(), open_rest(warehouse="cut-monday"), open_rest(warehouse="workspace-april")
    runtime.sql(f"INSERT INTO {home}.{LEDGER} VALUES (2, date'2025-03-03', 1, 'b')")
    runtime.sql(f"ALTER TABLE {home}.{LEDGER} ADD COLUMN place string")
    runtime.sql(f"ALTER TABLE {home}.{LEDGER} ADD PARTITION FIELD place")
    runtime.sql(f"CALL {home}.system.expire_snapshots(table => '{LEDGER}', older_than => {FAR_FUTURE})")
    assert (ids(runtime, f"{cut}.{LEDGER}"), ids(runtime, f"{home}.{LEDGER}", "VERSION AS OF 'cut-monday'")) == (
        [1],
        [1],
    )
    assert runtime.table(f"{cut}.{LEDGER}").columns == ["id", "day", "amount", "note"]
    assert runtime.table(f"{cut}.{LEDGER}.snapshots").count() == 1
    runtime.sql(f"INSERT INTO {april}.{LEDGER} VALUES (3, date'2025-03-03', 1, 'c', 'here')")
    runtime.sql(f"DELETE FROM {april}.{LEDGER} WHERE id = 1")
    assert (ids(runtime, f"{april}.{LEDGER}"), books.ids()) == ([3], [1, 2])
    for catalog in (cut, april):
        with pytest.raises(Exception, match="GC is disabled"):
            runtime.sql(f"CALL {catalog}.system.remove_orphan_files(table => '{LEDGER}')").collect()
    with pytest.raises(Exception, match="cut-monday can't be changed"):
        runtime.sql(f"DELETE FROM {cut}.{LEDGER}")
    assert [(each.added, each.removed, each.moved) for each in workspaces.diff("april")] == [(1, 1, True)]
