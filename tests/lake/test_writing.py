"""What a transaction writes into tables is visible with its decision, and not before."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, POSTING, TUESDAY, Books, rows
from tests.scene.elsewhere import Elsewhere

pytestmark = pytest.mark.postgres


def test_a_table_comes_to_be_with_its_transaction(books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"]).append(rows(1, 2))
        assert not books.is_there(LEDGER)
    assert books.ids() == [1, 2]


def test_a_table_is_created_without_rows(books: Books) -> None:
    books.create(LEDGER)
    assert books.ids() == []


def test_rows_are_visible_with_the_decision(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1, 2))
        tx.table(LEDGER).append(rows(3, day=TUESDAY))
        assert books.ids() == []
    assert books.ids() == [1, 2, 3]
    trace = books.broker.kernel.store.overview.trace(tx.txid or 0)
    assert trace and [each.rows for each in trace.written if each.name == "bank.ledger" and each.counts] == [2, 1]


@pytest.mark.req("RMQ-01")
def test_tables_and_messages_share_one_fate(books: Books) -> None:
    books.create(LEDGER, POSTING)
    with books.producer.transaction(key="one") as tx:
        tx.table(LEDGER).append(rows(1))
        tx.table(POSTING).append(rows(2))
        tx.send("booked", b"1")
    with pytest.raises(ZeroDivisionError), books.producer.transaction(key="two") as tx:
        tx.table(LEDGER).append(rows(3))
        tx.send("booked", b"3")
        raise ZeroDivisionError
    with books.broker.cut() as cut:
        assert sum(cut.heads["booked"]) == 1
    assert (books.ids(), books.ids(POSTING)) == ([1], [2])


def test_values_come_back_as_they_were(books: Books) -> None:
    columns = {
        **COLUMNS,
        "at": "timestamptz",
        "ok": "boolean",
        "ratio": "double",
        "blob": "binary",
    }
    given = rows(1, {"id": 2, "day": None, "note": None}, {"id": 3, "note": "ä'\n"})
    more = {
        "at": pa.array([datetime(1960, 1, 1, 23, 59, 59, 999999, UTC), None, datetime(2025, 1, 1, tzinfo=UTC)]),
        "ok": [True, None, False],
        "ratio": [0.1, None, float("inf")],
        "blob": [b"\x00", None, b""],
    }
    for name, values in more.items():
        given = given.append_column(name, pa.array(values))
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(columns, partitions=["day", "bucket(4, id)", "hour(at)", "truncate(2, note)"]).append(
            given
        )
    found = books.table().scan().to_arrow().sort_by("id")
    assert found.to_pylist() == given.to_pylist()


@pytest.mark.parametrize("partitions", [(), ("day",), ("bucket(3, id)",), ("month(day)", "truncate(1, note)")])
def test_rows_are_found_by_what_they_are_partitioned_by(books: Books, partitions: tuple[str, ...]) -> None:
    books.create(partitions=partitions)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(
            pa.concat_tables([rows(*range(50)), rows(*range(50, 60), day=TUESDAY), rows(60, day=None)])
        )
    assert books.ids() == list(range(61))
    scan = books.table().scan(row_filter="day = '2025-03-04'")
    assert sorted(scan.to_arrow().column("id").to_pylist()) == list(range(50, 60))
    assert books.table().scan(row_filter="id = 7").to_arrow().num_rows == 1


def test_a_stream_of_rows_is_written_in_pieces(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.lake.files.FILE_BYTES", 1)
    books.create()
    batches = [batch for number in range(4) for batch in rows(number).to_batches()]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with books.producer.transaction() as tx:
        write = tx.table(LEDGER).append(reader)
    assert write is not None
    assert (write.files, write.rows) == (4, 4)
    assert books.ids() == [0, 1, 2, 3]


def test_an_empty_append_writes_nothing(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        assert tx.table(LEDGER).append(rows()) is None
        tx.send("booked", b"")
    assert books.table().current_snapshot() is None


def test_a_retry_delivers_the_rows_of_its_last_attempt_alone(books: Books, open_books: "type[Books]") -> None:
    books.create()
    dead = Elsewhere(books.producer.transaction(key="job")).__enter__()
    dead.table(LEDGER).append(rows(1))
    with books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).append(rows(2))
    assert books.ids() == [2]


def test_snapshots_name_their_transaction_and_count_right(books: Books) -> None:
    books.create()
    books.append(1, 2)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(3), properties={"job": "nightly"})
        txid = tx.id
    snapshot = books.table().current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    found = snapshot.summary.additional_properties
    assert (found["txsaga-transaction"], found["job"]) == (txid, "nightly")
    assert (found["added-records"], found["total-records"], found["total-data-files"]) == ("1", "3", "2")


def test_overwriting_a_partition_leaves_the_others(books: Books) -> None:
    books.create()
    books.append(1, 2)
    books.append(3, day=TUESDAY)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(4), where={"day": MONDAY})
    assert books.ids() == [3, 4]
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(), where={"day": [TUESDAY, None]})
    assert books.ids() == [4]


def test_overwriting_replaces_everything(books: Books) -> None:
    books.create()
    books.append(1, 2)
    books.append(3, day=None)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(4))
        tx.table(LEDGER).overwrite(rows(5))
        tx.table(LEDGER).append(rows(6))
    assert books.ids() == [5, 6]
    total = books.table().current_snapshot()
    assert total is not None and total.summary is not None
    assert total.summary.additional_properties["total-records"] == "2"


def test_older_snapshots_stay_readable(books: Books) -> None:
    books.create()
    books.append(1)
    first = books.table().current_snapshot()
    assert first is not None
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(2))
    assert books.table().scan(snapshot_id=first.snapshot_id).to_arrow().column("id").to_pylist() == [1]
    assert MONDAY in books.table().scan(snapshot_id=first.snapshot_id).to_arrow().column("day").to_pylist()
