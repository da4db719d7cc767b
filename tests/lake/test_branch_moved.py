"""The table moved while its branch was written: what was added goes onto that, what was changed where that is exact."""

import random
from collections.abc import Callable

import pytest

from tests.lake.books import LEDGER, MONDAY, TUESDAY, Books, rows
from tests.lake.branching import add, branches, delete
from tests.lake.test_conflicts import Meanwhile, meanwhile, ours
from txsaga.core.decision import Decision
from txsaga.errors import TableMoved
from txsaga.lake.table import WriteMode

__all__ = ["meanwhile", "ours"]

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("emptied", [False, True])
def test_a_branch_that_only_added_is_put_onto_whatever_is_newest(
    ours: Books, books: Books, meanwhile: Meanwhile, emptied: bool
) -> None:
    books.create()
    if not emptied:
        books.append(1)
    meanwhile.once("Built", lambda: books.append(9), times=2)
    with ours.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            add(books, ledger, 2)
            add(books, ledger, 3, day=TUESDAY)
        books.append(8)
    assert books.ids() == ([] if emptied else [1]) + [2, 3, 8, 9, 9]
    assert not branches(books)
    assert ledger.write is not None and ledger.write.mode is WriteMode.APPEND
    newest = books.table().current_snapshot()
    assert newest is not None and newest.summary is not None
    assert newest.summary.additional_properties["total-records"] == str(len(books.ids()))
    books.table().delete("id = 3")
    assert 3 not in books.ids()


@pytest.mark.parametrize("decided", [False, True])
def test_what_was_changed_on_a_branch_is_a_conflict_where_the_table_moved(books: Books, decided: bool) -> None:
    books.create()
    books.append(1, 2)
    with pytest.raises(TableMoved, match="deletes or replaces rows"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            delete(books, ledger, 1)
            if not decided:
                books.append(3, day=TUESDAY)
        assert decided, "it can only fail: hours of work would follow"
        books.append(3, day=TUESDAY)
        tx.send("booked", b"")
    assert books.ids() == [1, 2, 3] and tx.decision is Decision.ROLLBACK
    with books.broker.cut() as cut:
        assert not sum(cut.heads.get("booked", ()))


def test_a_branch_that_looked_for_rows_to_delete_did_more_than_add(books: Books) -> None:
    books.create()
    with pytest.raises(TableMoved), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            add(books, ledger, 1)
            add(books, ledger, 2)
            delete(books, ledger, 2)
        books.append(2)
    assert books.ids() == [2]


def test_what_was_changed_in_other_partitions_is_carried_over(ours: Books, books: Books, meanwhile: Meanwhile) -> None:
    books.create()
    books.append(1, 2)
    books.append(5, day=TUESDAY)
    meanwhile.once("Built", lambda: books.append(6, day=TUESDAY), times=2)
    with ours.producer.transaction() as tx:
        with tx.table(LEDGER).branch(rebase=True) as ledger:
            delete(books, ledger, 1)
            add(books, ledger, 3)
        books.table().delete("id = 5")
        books.append(7, day=TUESDAY)
    assert books.ids() == [2, 3, 6, 6, 7]
    newest = books.table().current_snapshot()
    assert newest is not None and newest.summary is not None
    assert newest.summary.additional_properties["total-records"] == "5"
    books.append(8)
    assert books.ids() == [2, 3, 6, 6, 7, 8]


MOVED: dict[str, Callable[[Books], None]] = {
    "an append": lambda books: books.append(7),
    "a delete of the same file": lambda books: books.table().delete("id = 2"),
    "an overwrite": lambda books: overwrite(books, 7),
    "other partitions": lambda books: repartition(books),
}


def overwrite(books: Books, id: int) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(id), where={"day": MONDAY})


def repartition(books: Books) -> None:
    with books.table().update_spec() as change:
        change.add_identity("note")
    books.append(7, day=TUESDAY)


@pytest.mark.parametrize("how", MOVED)
def test_where_both_changed_a_partition_nothing_is_carried_over(books: Books, how: str) -> None:
    books.create()
    books.append(1, 2)
    with pytest.raises(TableMoved), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(rebase=True) as ledger:
            delete(books, ledger, 1)
        MOVED[how](books)
    assert 1 in books.ids() or how == "an overwrite"


def test_a_table_without_partitions_is_one(books: Books) -> None:
    books.create(partitions=())
    books.append(1, 2)
    with pytest.raises(TableMoved, match="partition"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(rebase=True) as ledger:
            delete(books, ledger, 1)
        books.append(3, day=TUESDAY)
    assert books.ids() == [1, 2, 3]


def test_a_table_that_was_set_back_is_not_set_forward(books: Books) -> None:
    books.create()
    books.append(1)
    first = books.table().metadata.current_snapshot_id
    books.append(2)
    assert first is not None
    with pytest.raises(TableMoved), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            delete(books, ledger, 2)
        with books.table().manage_snapshots() as manage:
            manage.rollback_to_snapshot(first)
    assert books.ids() == [1]


def meddle(books: Books, chance: random.Random, there: dict[int, bool], id: int) -> None:
    """Do something to the table, or nothing, as somebody else; each row is in one of two partitions."""
    match chance.choice(["nothing", "nothing", "add", "delete"]):
        case "add":
            there[id] = chance.random() < 0.5
            books.append(id, day=MONDAY if there[id] else TUESDAY)
        case "delete" if there:
            gone = chance.choice(sorted(there))
            books.table().delete(f"id = {gone}")
            del there[gone]


@pytest.mark.timeout(300)
def test_whatever_others_do_meanwhile_each_transaction_happens_as_it_was_or_not_at_all(books: Books) -> None:
    chance, there, moved = random.Random(11), dict[int, bool](), 0
    books.create()
    for round in range(24):
        before = books.table().metadata.current_snapshot_id
        doomed = [each for each in sorted(there) if chance.random() < 0.3]
        added, monday = 1000 + round, chance.random() < 0.5
        adding = chance.random() < 0.6 or not doomed
        try:
            with books.producer.transaction() as tx:
                with tx.table(LEDGER).branch(rebase=True) as ledger:
                    if adding:
                        add(books, ledger, added, day=MONDAY if monday else TUESDAY)
                    if doomed:
                        delete(books, ledger, *doomed)
                    meddle(books, chance, there, 2000 + round)
                meddle(books, chance, there, 3000 + round)
            there |= {added: monday} if adding else {}
            there = {id: day for id, day in there.items() if id not in doomed}
        except TableMoved:
            moved += 1
            assert doomed and books.table().metadata.current_snapshot_id != before
        assert books.ids() == sorted(there)
        if chance.random() < 0.3:
            books.lake.collect()
    assert 0 < moved < 20
