"""Who published a row: the tables that transactions wrote to, and the transactions of each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.console.conftest import Enter
from tests.console.test_pages import HOSTILE
from tests.lake.books import LEDGER, MONDAY, POSTING, TUESDAY, Books, rows
from tests.scene.shop import Shop
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.console import reading
from txsaga.console.people import Rank


def test_who_published_a_row_is_found_without_knowing_its_table(books: Books, enter: Enter) -> None:
    books.create()
    books.append(1, 2)
    with books.producer.transaction(key="mended-monday") as tx:
        tx.table(LEDGER).overwrite(rows(3), where={"day": MONDAY})
    newest = books.table().current_snapshot()
    assert newest is not None
    with pytest.raises(ValueError, match="no"), books.producer.transaction() as lost:
        lost.table(LEDGER).append(rows(4, day=TUESDAY))
        raise ValueError("no")
    client = enter(Rank.VIEWER)
    page = client.get("/tables").text
    assert f'href="/table?name={LEDGER}"' in page
    assert "mended-monday" in page
    (table,) = client.get("/api/v1/tables").json()["items"]
    assert (table["txid"], table["snapshot"]) == (tx.txid, str(newest.snapshot_id))
    assert table["pointer"] == books.table().metadata_location
    found = client.get(f"/api/v1/table?name={LEDGER}").json()["items"]
    assert [(each["mode"], each["rows"], each["state"]) for each in found if each["txid"] != lost.txid] == [
        ("overwrite", 1, "committed"),
        ("append", 2, "committed"),
        ("create", 0, "committed"),
    ]
    assert "mended-monday" in client.get(f"/table?name={LEDGER}").text
    (written,) = client.get(f"/api/v1/transactions/{tx.txid}").json()["tables"]
    assert (written["rows"], written["removed"], written["snapshot"]) == (1, 2, str(newest.snapshot_id))
    assert 'data-label="Rows removed">2<' in client.get(f"/transactions/{tx.txid}").text


def test_rows_of_the_home_database_are_listed_too(books: Books, stored: Stored, enter: Enter) -> None:
    schema = fresh_name("sales")
    stored.rows(f"CREATE SCHEMA {schema}")
    stored.rows(f"CREATE TABLE {schema}.sale (id int PRIMARY KEY)")
    with books.producer.transaction() as tx:
        tx.rows(f"{schema}.sale").insert(pa.table({"id": [1, 2]}))
    stored.rows(f"DROP SCHEMA {schema} CASCADE")
    client = enter(Rank.VIEWER)
    (table,) = client.get("/api/v1/tables").json()["items"]
    assert (table["kind"], table["txid"], table["pointer"]) == ("rows", tx.txid, None)
    (found,) = client.get("/api/v1/table", params={"name": table["name"]}).json()["items"]
    assert found["rows"] == 2
    (written,) = client.get(f"/api/v1/transactions/{tx.txid}").json()["tables"]
    assert (written["rows"], written["removed"], written["snapshot"]) == (2, 0, None)
    assert "home table" in client.get("/tables").text


def test_a_lake_that_can_not_be_read_leaves_only_the_removed_rows_unknown(
    books: Books, tmp_path: Path, enter: Enter
) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(3))
    for file in tmp_path.rglob("*.metadata.json"):
        file.unlink()
    client = enter(Rank.VIEWER)
    (written,) = client.get(f"/api/v1/transactions/{tx.txid}").json()["tables"]
    assert (written["rows"], written["removed"]) == (1, None)
    assert "not known" in client.get(f"/transactions/{tx.txid}").text


def test_tables_and_their_transactions_are_read_page_by_page(books: Books, shop: Shop) -> None:
    books.create(LEDGER, POSTING)
    for number in range(3):
        books.append(number)
    first = reading.tables(shop.store, limit=1)
    second = reading.tables(shop.store, first["next"], limit=1)
    assert [each["name"] for each in (*first["items"], *second["items"])] == [LEDGER, POSTING]
    assert second["next"] is None
    found, before = list[int](), None
    while True:
        page = reading.table(shop.store, LEDGER, before, limit=2)
        found += [each["txid"] for each in page["items"]]
        if page["next"] is None:
            break
        before = str(page["next"])
    assert len(found) == 4
    assert found == sorted(found, reverse=True)


def test_a_hostile_name_of_a_table_is_shown_as_text(books: Books, stored: Stored, enter: Enter) -> None:
    books.create()
    names = stored.rows("SELECT payload -> 'name' FROM effect")
    assert len(names) == 1
    stored.rows(f"UPDATE effect SET payload = jsonb_set(payload, '{{name,2}}', to_jsonb($${HOSTILE}$$::text))")
    client = enter(Rank.ADMIN)
    (table,) = client.get("/api/v1/tables").json()["items"]
    pages = [client.get("/tables"), client.get("/table", params={"name": table["name"]})]
    pages.append(client.get(f"/transactions/{table['txid']}"))
    for page in pages:
        assert "&lt;script&gt;" in page.text
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text


def test_a_store_without_tables_says_how_they_appear(enter: Enter) -> None:
    client = enter(Rank.VIEWER)
    assert "No transaction has written to a table yet" in client.get("/tables").text
    assert "No transaction has written to this table" in client.get("/table?name=a.b").text
    for path in ("/tables?after=%00", "/table?name=%00", "/table?name=a.b&before=x"):
        assert client.get(path).status_code == 400
