"""Collected is what no decision publishes: never a file that is referenced, nor one that may still be published."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lake.books import COLUMNS, LEDGER, POSTING, Books, rows
from tests.scene.elsewhere import Elsewhere

pytestmark = pytest.mark.postgres


class Refused(Exception):
    """What the user's own code raises."""


def staged(warehouse: Path) -> set[Path]:
    return {path for path in warehouse.rglob("*") if "_txsaga" in str(path) and path.suffix in (".parquet", ".avro")}


@pytest.mark.req("IBM-04")
def test_what_rolled_back_is_taken_away_with_its_files(books: Books, warehouse: Path) -> None:
    books.create()
    books.append(1)
    before = staged(warehouse)
    with pytest.raises(Refused), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2))
        tx.table(POSTING).create(COLUMNS).append(rows(3))
        raise Refused
    assert len(staged(warehouse)) == len(before) + 4
    found = books.lake.collect(dry_run=True)
    assert len(found) == 4
    assert books.lake.collect() == found
    assert staged(warehouse) == before
    assert not books.lake.collect()
    assert books.ids() == [1]


def test_what_is_undecided_stays(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
        assert not books.lake.collect()
    assert books.ids() == [1]


def test_of_a_committed_transaction_only_lost_attempts_go(books: Books, warehouse: Path) -> None:
    books.create()
    dead = Elsewhere(books.producer.transaction(key="job")).__enter__()
    dead.table(LEDGER).append(rows(1))
    with books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).append(rows(2))
    assert len(books.lake.collect()) == 2
    assert books.ids() == [2]
    assert len(staged(warehouse)) == 2


def test_a_folder_of_another_store_is_left_alone(books: Books, warehouse: Path) -> None:
    books.create()
    strange = warehouse / "bank" / "ledger" / "data" / "_txsaga" / f"{'0' * 32}-1-1" / "1-1-1"
    strange.mkdir(parents=True)
    (strange.parent.parent / "notes" / "x").mkdir(parents=True)
    assert not books.lake.collect()
    assert strange.is_dir()


@pytest.mark.timeout(300)
def test_whatever_happens_nothing_that_is_needed_goes(books: Books) -> None:
    chance, expected = random.Random(7), list[int]()
    books.create()
    for id in range(14):
        try:
            with books.producer.transaction(key=str(id)) as tx:
                tx.table(LEDGER).append(rows(id))
                if chance.random() < 0.3:
                    raise Refused
                if chance.random() < 0.3:
                    tx.table(LEDGER).overwrite(rows(id + 100))
                    expected.clear()
                    expected.append(id + 100)
                else:
                    expected.append(id)
                if chance.random() < 0.5:
                    books.lake.collect()
        except Refused:
            pass
        books.lake.collect()
        assert books.ids() == sorted(expected)
    for snapshot in books.table().metadata.snapshots:
        books.table().scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def test_a_warehouse_that_was_moved_keeps_what_its_tables_lead_to(
    open_books: Callable[..., Books], warehouse: Path
) -> None:
    before = open_books()
    before.create()
    before.append(1)
    moved = warehouse.with_name("moved")
    warehouse.rename(moved)
    warehouse.symlink_to(moved)
    books = open_books()
    assert books.lake.warehouse != f"file://{warehouse}"
    assert not books.lake.collect()
    assert books.ids() == [1]
