"""What a commit costs stays what it was: manifests are put together, old snapshots are named no more."""

from pathlib import Path

import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, TUESDAY, Books, rows
from txsaga.lake import manifests as merging

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]


def test_many_commits_leave_few_manifests_and_every_row(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WIDTH", 3)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"], properties={"txsaga.snapshots.kept": "4"})
    for id in range(40):
        books.append(id, day=MONDAY if id % 2 else TUESDAY)
    table = books.table()
    assert books.ids() == list(range(40))
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert len(snapshot.manifests(table.io)) <= 3 * merging.SIZES
    assert len(table.metadata.snapshots) <= 2 * 4
    assert len(table.metadata.metadata_log) <= 20
    assert snapshot.summary.additional_properties["total-records"] == "40"
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(99), where={"day": MONDAY})
    assert books.ids() == [*range(0, 40, 2), 99]


def test_snapshots_of_before_are_named_as_long_as_something_leads_to_them(books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, properties={"txsaga.snapshots.kept": "2"}).append(rows(0))
    first = books.table().metadata.current_snapshot_id
    assert first is not None
    with books.table().manage_snapshots() as manage:
        manage.create_tag(first, "kept")
    for id in range(1, 9):
        books.append(id)
    assert books.table().scan(snapshot_id=first).to_arrow().num_rows == 1
    assert books.ids() == list(range(9))


def test_a_table_of_somebody_else_keeps_all_its_snapshots(books: Books) -> None:
    books.lake.catalog.create_namespace("bank")
    place = f"{books.lake.warehouse}/bank/ledger"
    schema = rows(1).schema
    books.lake.catalog.create_table(LEDGER, schema, location=place)
    with books.table().update_spec() as change:
        change.add_identity("day")
    for id in range(6):
        books.append(id)
    assert len(books.table().metadata.snapshots) == 6
    assert Path(place.removeprefix("file://")).is_dir()
