"""Tables in an object store: staged, published, read and collected as those in a folder are."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, POSTING, TUESDAY, Books, rows
from tests.services.objects import ObjectStore, object_store
from txsaga.errors import TableMoved, WarehouseAway

pytestmark = pytest.mark.postgres

Open = Callable[..., Books]


class Refused(Exception):
    """What the user's own code raises."""


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    """Give an object store."""
    with object_store() as store:
        yield store


@pytest.fixture
def warehouse(home_url: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the place of all tables, in the object store."""
    for name, value in objects.settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TXSAGA__{name.replace('.', '__').replace('-', '_').upper()}", value)
    return f"s3://{objects.bucket}/{home_url.rpartition('=')[2]}"


def staged(objects: ObjectStore) -> set[str]:
    return {name for name in objects.files() if "_txsaga" in name and name.endswith((".parquet", ".avro"))}


def test_rows_and_messages_are_there_together(books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"]).append(rows(1, 2))
        tx.send("booked", b"2")
        assert not books.is_there(LEDGER)
    books.append(3, day=TUESDAY)
    assert books.ids() == [1, 2, 3]
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(4), where={"day": MONDAY})
    assert books.ids() == [3, 4]


def test_what_others_changed_meanwhile_is_not_overwritten(books: Books, open_books: Open) -> None:
    books.create()
    books.append(1)
    other = open_books()
    with pytest.raises(TableMoved), books.producer.transaction() as tx:
        table = tx.table(LEDGER).taking({"day": MONDAY})
        other.append(2)
        table.overwrite(rows(3), where={"day": MONDAY})
    assert books.ids() == [1, 2]


def test_what_rolled_back_is_collected_and_nothing_else(books: Books, objects: ObjectStore) -> None:
    books.create()
    books.append(1)
    before = staged(objects)
    with pytest.raises(Refused), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2))
        tx.table(POSTING).create(COLUMNS).append(rows(3))
        assert not books.lake.collect()
        raise Refused
    assert len(staged(objects)) == len(before) + 4
    found = books.lake.collect(dry_run=True)
    assert len(found) == 4 and all(each.startswith("s3://") for each in found)
    assert books.lake.collect() == found
    assert staged(objects) == before
    assert not books.lake.collect()
    assert books.ids() == [1]


def test_a_stream_of_rows_and_a_cut_are_read_from_there(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(pa.RecordBatchReader.from_batches(rows(1).schema, rows(1, 2).to_batches()))
    with books.broker.cut(tables=[LEDGER]) as cut:
        books.append(3)
        assert sorted(cut.scan(LEDGER).to_arrow().column("id").to_pylist()) == [1, 2]


def test_a_store_that_is_away_is_told_and_nothing_is_visible(books: Books, objects: ObjectStore) -> None:
    books.create()
    with object_store() as gone:
        address = gone.settings["s3.endpoint"]
    books.lake.lake.storage.properties["s3.endpoint"] = address
    books.lake.lake.storage.properties["s3.request-timeout"] = books.lake.lake.storage.properties[
        "s3.connect-timeout"
    ] = "1"
    with pytest.raises(WarehouseAway, match="retry"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
    books.lake.lake.storage.properties.update(objects.settings)
    assert books.ids() == []


def test_a_place_that_is_written_in_two_ways_keeps_what_its_tables_lead_to(open_books: Open, warehouse: str) -> None:
    before = open_books(place=warehouse.replace("s3:", "s3a:"))
    before.create()
    before.append(1)
    books = open_books()
    assert not books.lake.collect()
    assert books.ids() == [1]
