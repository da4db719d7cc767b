"""Several writers on one table: appends never conflict, overwrites replace what they have seen and nothing else."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, POSTING, TUESDAY, Books, rows
from txsaga.core.facts import Fact
from txsaga.errors import EffectConflict, TableMoved, TableTaken

pytestmark = pytest.mark.postgres


class Meanwhile:
    """Does something once, just behind a fact."""

    def __init__(self) -> None:
        self.fact, self.left = "", 0
        self.work: Callable[[], None] = print

    def once(self, fact: str, work: Callable[[], None], *, times: int = 1) -> None:
        self.fact, self.work, self.left = fact, work, times

    def __call__(self, fact: Fact) -> None:
        if fact.name == self.fact and self.left:
            self.left -= 1
            self.work()


@pytest.fixture
def meanwhile() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def ours(open_books: Callable[..., Books], meanwhile: Meanwhile) -> Books:
    return open_books(meanwhile)


def test_an_append_is_put_onto_whatever_is_newest(ours: Books, books: Books, meanwhile: Meanwhile) -> None:
    books.create(LEDGER, POSTING)
    meanwhile.once("Built", lambda: books.append(1), times=3)
    with ours.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2))
        tx.table(POSTING).append(rows(2))
        tx.send("booked", b"2")
    assert books.ids() == [1, 1, 1, 2]
    assert books.ids(POSTING) == [2]
    assert not left_over(books)


def left_over(books: Books) -> list[str]:
    """Return metadata files that no pointer leads to, and lists that no snapshot names."""
    found = []
    for name in (LEDGER, POSTING):
        if not books.is_there(name):
            continue
        table = books.table(name)
        known = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        known |= {snapshot.manifest_list for snapshot in table.metadata.snapshots}
        folder = books.lake.warehouse.removeprefix("file://") + "/" + name.replace(".", "/") + "/metadata"
        from pathlib import Path

        paths = [f"file://{path}" for path in Path(folder).iterdir() if path.name.startswith(("0", "snap"))]
        found += [path for path in paths if path not in known]
    return found


def test_a_partition_that_somebody_else_changed_is_not_overwritten(
    ours: Books, books: Books, meanwhile: Meanwhile
) -> None:
    books.create()
    books.append(1)
    meanwhile.once("Ended", lambda: books.append(2))
    with pytest.raises(TableMoved, match="changed in the part that is overwritten"), ours.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(9), where={"day": MONDAY})
        tx.send("booked", b"9")
    assert books.ids() == [1, 2]
    assert tx.decision is not None and tx.decision.name == "ROLLBACK"
    with books.broker.cut() as cut:
        assert not sum(cut.heads.get("booked", ()))


def test_another_partition_may_be_changed_meanwhile(ours: Books, books: Books, meanwhile: Meanwhile) -> None:
    books.create()
    books.append(1)
    meanwhile.once("Built", lambda: books.append(2, day=TUESDAY), times=2)
    with ours.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(9), where={"day": MONDAY})
    assert books.ids() == [2, 2, 9]


def test_an_overwrite_that_can_only_fail_is_told_so_before_it_is_recorded(
    ours: Books, books: Books, meanwhile: Meanwhile
) -> None:
    books.create()
    with pytest.raises(TableMoved), ours.producer.transaction() as tx:
        table = tx.table(LEDGER).taking()
        books.append(1)
        table.overwrite(rows(2))
        pytest.fail("hours of work would follow")
    assert books.ids() == [1]


def test_what_was_taken_before_the_first_row_is_not_overwritten_unseen(books: Books) -> None:
    books.create()
    with pytest.raises(TableMoved), books.producer.transaction() as tx:
        tx.table(LEDGER).taking({"day": MONDAY})
        books.append(1)
        tx.table(LEDGER).overwrite(rows(2), where={"day": MONDAY})


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ({"day": MONDAY}, {"day": MONDAY}, True),
        ({"day": MONDAY}, {"day": [TUESDAY, MONDAY]}, True),
        ({"day": MONDAY}, None, True),
        (None, {"day": MONDAY}, True),
        ({"day": MONDAY}, {"day": TUESDAY}, False),
    ],
)
def test_a_second_overwrite_of_the_same_is_refused_before_its_work(
    books: Books, first: dict[str, object] | None, second: dict[str, object] | None, meet: bool
) -> None:
    books.create()
    with books.producer.transaction(key="one") as one:
        one.table(LEDGER).taking(first)
        with books.producer.transaction(key="two") as two:
            if meet:
                with pytest.raises(TableTaken, match=f"transaction {one.txid} overwrites the same"):
                    two.table(LEDGER).taking(second)
            else:
                two.table(LEDGER).taking(second)
    with books.producer.transaction(key="three") as three:
        three.table(LEDGER).taking(second)


def test_a_table_that_somebody_else_created_meanwhile_is_a_conflict(
    ours: Books, books: Books, meanwhile: Meanwhile
) -> None:
    meanwhile.once("Ended", lambda: books.create(LEDGER))
    with pytest.raises(EffectConflict, match="created by another process"), ours.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"]).append(rows(1))
    assert books.ids() == []


def test_a_table_that_was_dropped_meanwhile_is_a_conflict(books: Books) -> None:
    books.create()
    with pytest.raises(TableMoved, match="dropped meanwhile"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
        books.lake.catalog.drop_table(LEDGER)
    assert not books.is_there(LEDGER)


def test_a_table_of_the_same_name_is_not_written_to(books: Books) -> None:
    books.create()
    with pytest.raises(TableMoved, match="created again"), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
        books.lake.catalog.drop_table(LEDGER)
        books.create()
    assert books.ids() == []


def test_a_column_that_came_meanwhile_is_null_in_what_was_staged_before(books: Books) -> None:
    from pyiceberg.types import LongType

    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
        with books.table().update_schema() as change:
            change.add_column("more", LongType())
    assert books.table().scan().to_arrow().column("more").to_pylist() == [None]


def test_partitions_that_changed_meanwhile_leave_staged_files_as_they_are(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
        with books.table().update_spec() as change:
            change.add_identity("note")
    books.append(2)
    assert books.ids() == [1, 2]
    assert books.table().scan(row_filter="day = '2025-03-03'").to_arrow().num_rows == 2


def test_a_decision_that_is_overtaken_again_and_again_gives_up(
    ours: Books, books: Books, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.messages.effects.TRIES", 3)
    books.create()
    meanwhile.once("Built", lambda: books.append(1), times=99)
    with pytest.raises(EffectConflict, match="overtaken by other writers 3 times"), ours.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2))
    assert 2 not in books.ids()
    assert not left_over(books)


def test_pyiceberg_writes_between_our_writes(books: Books) -> None:
    books.create()
    books.append(1)
    target = books.table()
    target.append(rows(2).cast(target.schema().as_arrow()))
    books.append(3)
    target = books.table()
    target.delete("id = 2")
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(pa.concat_tables([rows(4), rows(5, day=TUESDAY)]))
    books.append(6)
    assert books.ids() == [4, 5, 6]
