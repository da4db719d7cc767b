"""A branch that can't be begun or recorded is refused in one line, and nothing of it is visible."""

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile, DataFileContent

from tests.lake.books import COLUMNS, LEDGER, POSTING, Books, rows
from tests.lake.branching import Refused, add
from txsaga.errors import ColumnsDiffer, ConfigError, FormatRefused, TableMoved, TransactionError, UnknownTable
from txsaga.lake.lake import MOST, require_readable

pytestmark = pytest.mark.postgres


def test_a_block_without_a_write_records_nothing(books: Books) -> None:
    books.create()
    before = books.table().metadata.current_snapshot_id
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            pass
        assert ledger.write is None
    assert books.table().metadata.current_snapshot_id == before
    assert len(books.lake.collect()) == 1


def test_a_branch_is_the_first_that_is_written_of_its_table(books: Books) -> None:
    books.create(LEDGER)
    with books.producer.transaction() as tx:
        tx.table(POSTING).create(COLUMNS)
        with pytest.raises(TransactionError, match="begin the branch first"), tx.table(POSTING).branch():
            pytest.fail("it was begun")
        with pytest.raises(Refused), tx.table(LEDGER).branch() as failed:
            add(books, failed, 1)
            raise Refused
        with tx.table(LEDGER).branch() as ledger:
            add(books, ledger, 2)
            with pytest.raises(TransactionError, match="written on a branch"):
                tx.table(LEDGER).append(rows(3))
            with pytest.raises(TransactionError, match="begin the branch first"), tx.table(LEDGER).branch():
                pytest.fail("it was begun")
        tx.table(LEDGER).append(rows(4))
    assert books.ids() == [2, 4]


def test_what_a_branch_is_not_made_for_is_refused_in_one_line(books: Books, tmp_path: Path) -> None:
    books.create()
    with books.producer.transaction() as tx:
        tx.send("booked", b"")
        branch = tx.table(LEDGER).branch()
        with pytest.raises(TransactionError, match="as `with tx"):
            _ = branch.branch
        with pytest.raises(ConfigError, match="give a Spark session"):
            tx.table(LEDGER).branch(tmp_path)
        with pytest.raises(UnknownTable), tx.table("bank.nothing").branch():
            pytest.fail("it was begun")
        with tx.table(LEDGER).branch() as plain, pytest.raises(ConfigError, match=r"branch\(spark\)"):
            plain.sql("DELETE FROM {table}")
    with pytest.raises(TransactionError), branch:
        pytest.fail("it was begun behind the end")


def test_a_branch_goes_with_no_local_work(books: Books) -> None:
    books.create()
    with pytest.raises(ConfigError, match="coordinated"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            add(books, ledger, 1)
        with tx.local("anything"):
            pytest.fail("it was entered")


def test_columns_that_changed_under_a_branch_are_refused(books: Books) -> None:
    from pyiceberg.types import LongType

    books.create()
    with pytest.raises(ColumnsDiffer, match="separate statement"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            with books.table().update_schema() as change:
                change.add_column("more", LongType())
            table = books.table()
            table.append(
                rows(1).append_column("more", rows(1).column("id")).cast(table.schema().as_arrow()),
                branch=ledger.branch,
            )
    assert books.ids() == []


def test_a_branch_that_somebody_dropped_is_a_conflict(books: Books) -> None:
    books.create()
    books.append(1)
    with pytest.raises(TableMoved, match="was dropped; begin again"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            with books.table().manage_snapshots() as manage:
                manage.remove_branch(ledger.branch)
    with pytest.raises(TableMoved, match="created again"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            books.lake.catalog.drop_table(LEDGER)
            books.create()


def test_a_version_that_knows_no_branches_is_refused(books: Books) -> None:
    books.lake.catalog.create_namespace("bank")
    place = f"{books.lake.warehouse}/bank/ledger"
    books.lake.catalog.create_table(LEDGER, rows(1).schema, location=place, properties={"format-version": "1"})
    with pytest.raises(FormatRefused, match="'format-version'='2'"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch():
            pytest.fail("it was begun")


@pytest.mark.parametrize(
    ("content", "size"), [(DataFileContent.EQUALITY_DELETES, 1), (DataFileContent.POSITION_DELETES, MOST + 1)]
)
def test_deletes_that_no_gate_can_read_are_refused(books: Books, content: DataFileContent, size: int) -> None:
    books.create(LEDGER)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        add(books, ledger, 1)
    assert ledger.write is not None
    require_readable(ledger.write.name, [DataFile.from_args(content=DataFileContent.POSITION_DELETES)], 1)
    with pytest.raises(FormatRefused, match="let the table copy on write"):
        require_readable(ledger.write.name, [DataFile.from_args(content=content)], size)
