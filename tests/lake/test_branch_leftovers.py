"""What is left of branches: dropped once it is decided, kept as long as it may be published."""

import pytest

from tests.lake.books import COLUMNS, LEDGER, POSTING, TUESDAY, Books, rows
from tests.lake.branching import Refused, add, branches, delete

pytestmark = pytest.mark.postgres


@pytest.mark.req("IBM-04")
def test_branches_of_what_is_undecided_stay_and_others_go(books: Books) -> None:
    books.create(LEDGER, POSTING)
    books.append(1)
    with pytest.raises(Refused), books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        add(books, ledger, 2)
        raise Refused
    with books.producer.transaction() as tx:
        with tx.table(POSTING).branch() as posting:
            add(books, posting, 3)
            gone = books.lake.collect(dry_run=True)
            assert len(gone) == 1 and gone[0].endswith(f"of {LEDGER}")
            assert branches(books)
            assert books.lake.collect() == gone
        assert not books.lake.collect()
    assert not branches(books) and books.ids() == [1] and books.ids(POSTING) == [3]


def test_a_writer_that_is_late_makes_its_branch_anew_and_that_is_collected(books: Books) -> None:
    books.create()
    books.append(1)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        add(books, ledger, 2)
        name = ledger.branch
    head = books.table().metadata.current_snapshot_id
    assert head is not None
    with books.table().manage_snapshots() as manage:
        manage.create_branch(head, name).create_branch(head, "mine")
    late = books.table()
    late.append(rows(3).cast(late.schema().as_arrow()), branch=name)
    assert books.ids() == [1, 2]
    assert books.lake.collect() == [f"branch {name} of {LEDGER}"]
    assert branches(books) == {"mine"} and books.ids() == [1, 2]


def test_what_an_undecided_branch_needs_stays_named_however_many_commits_come(books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"], properties={"txsaga.snapshots.kept": "2"})
    books.append(1, 2)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(rebase=True) as ledger:
            delete(books, ledger, 1)
            add(books, ledger, 3)
        for id in range(10, 20):
            books.append(id, day=TUESDAY)
    assert books.ids() == [2, 3, *range(10, 20)]


def test_a_busy_table_does_not_keep_the_rest_from_being_collected(
    books: Books, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    books.create(LEDGER, POSTING)
    with pytest.raises(Refused), books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        tx.table(POSTING).append(rows(1))
        add(books, ledger, 2)
        raise Refused
    with monkeypatch.context() as busy, caplog.at_level("INFO", "txsaga"):
        busy.setattr("txsaga.lake.branches.TRIES", 0)
        assert books.lake.collect(), "nothing staged was found"
    assert "are kept until the next `txsaga collect`" in caplog.text
    assert branches(books)
    assert len(books.lake.collect()) == 1 and not branches(books)
