"""What another engine wrote on a branch is published as it was recorded, by whoever decides, or not at all."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.lake.books import LEDGER, POSTING, Books, rows
from tests.lake.branching import Refused, add, branches, delete
from tests.scene.elsewhere import Elsewhere
from txsaga import Folder
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision
from txsaga.errors import TableMoved, TransactionError

pytestmark = pytest.mark.postgres


def test_what_lies_on_a_branch_is_visible_with_the_decision(books: Books) -> None:
    books.create(LEDGER, POSTING)
    books.append(1, 2)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            delete(books, ledger, 1)
            add(books, ledger, 3)
            head = books.table().metadata.refs[ledger.branch].snapshot_id
        tx.table(POSTING).append(rows(3))
        tx.send("booked", b"3")
        assert books.ids() == [1, 2] and books.ids(POSTING) == []
    assert books.ids() == [2, 3] and books.ids(POSTING) == [3]
    assert books.table().metadata.current_snapshot_id == head, "it is not what was recorded"
    assert not branches(books)
    with books.broker.cut() as cut:
        assert sum(cut.heads["booked"]) == 1
    books.append(4)
    assert books.ids() == [2, 3, 4]


def test_a_branch_begins_with_what_is_published_and_leaves_it(books: Books) -> None:
    books.create()
    books.append(1)
    before = books.table().metadata.current_snapshot_id
    with pytest.raises(Refused), books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        assert books.table().metadata.refs[ledger.branch].snapshot_id == before
        add(books, ledger, 2)
        assert books.table().metadata.current_snapshot_id == before
        raise Refused
    assert tx.decision is Decision.ROLLBACK and books.ids() == [1]


def test_a_table_without_a_row_has_branches_too(books: Books) -> None:
    books.create()
    with books.producer.transaction() as tx, tx.table(LEDGER).branch() as ledger:
        assert books.table().metadata.refs[ledger.branch].snapshot_id is not None
        add(books, ledger, 1)
        add(books, ledger, 2)
    assert books.ids() == [1, 2]
    assert ledger.write is not None and (ledger.write.rows, ledger.write.files) == (2, 2)


def test_what_is_recorded_is_published_not_what_comes_onto_the_branch_later(books: Books) -> None:
    books.create()
    books.append(1)
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch() as ledger:
            add(books, ledger, 2)
            name = ledger.branch
        late = books.table()
        late.append(rows(3).cast(late.schema().as_arrow()), branch=name)
    assert books.ids() == [1, 2]
    assert not branches(books)


@pytest.mark.parametrize("moved", [False, True])
def test_a_branch_goes_with_the_resources_of_a_coordinated_transaction(
    books: Books, tmp_path: Path, moved: bool
) -> None:
    books.create()
    books.append(1)
    (tmp_path / "reports").mkdir()
    books.broker.enlist("reports", Folder(tmp_path / "reports"))
    with pytest.raises(TableMoved) if moved else nullcontext(), books.producer.coordinated("reports") as tx:
        with tx.table(LEDGER).branch() as ledger:
            delete(books, ledger, 1)
            add(books, ledger, 2)
        with tx.on("reports") as folder:
            assert folder.append("sales", rows(2)) == 1
        if moved:
            books.append(3)
    assert books.ids() == ([1, 3] if moved else [2])
    assert bool(list(Folder(tmp_path / "reports").files("sales"))) is not moved


@pytest.mark.rule("R4")
def test_each_attempt_has_a_branch_and_only_that_of_the_last_is_published(books: Books) -> None:
    books.create()
    books.append(1)
    dead = Elsewhere(books.producer.transaction(key="fix")).__enter__()
    with dead.table(LEDGER).branch() as old:
        add(books, old, 2)
        left = old.branch
    with books.producer.transaction(key="fix") as tx, tx.table(LEDGER).branch() as ledger:
        assert ledger.branch != left
        add(books, ledger, 3)
    assert books.ids() == [1, 3]
    assert branches(books) == {left}
    assert books.lake.collect() and not branches(books)
    assert books.ids() == [1, 3]


@pytest.mark.rule("R3")
def test_an_owner_that_was_taken_over_begins_no_branch_and_records_none(books: Books) -> None:
    books.create()
    dead = Elsewhere(books.producer.transaction(key="fix")).__enter__()
    with pytest.raises(TransactionError), dead.table(LEDGER).branch() as old:
        add(books, old, 2)
        with books.producer.transaction(key="fix") as tx:
            tx.send("booked", b"")
    before = books.table().metadata_location
    with pytest.raises(TransactionError), dead.table(LEDGER).branch():
        pytest.fail("it was begun")
    assert books.table().metadata_location == before and books.ids() == []


@pytest.mark.rule("R2")
@pytest.mark.req("RMQ-10")
@pytest.mark.parametrize("decision", list(Decision))
def test_whoever_decides_publishes_what_was_recorded(
    books: Books, open_books: Callable[..., Books], decision: Decision
) -> None:
    books.create()
    books.append(1)
    with pytest.raises(Refused), books.producer.transaction(key="fix") as tx:
        with tx.table(LEDGER).branch() as ledger:
            delete(books, ledger, 1)
            add(books, ledger, 2)
            name = ledger.branch
        tx.prepare()
        late = books.table()
        late.append(rows(3).cast(late.schema().as_arrow()), branch=name)
        raise Refused
    assert tx.txid is not None and books.ids() == [1]
    ByHand(open_books().broker.kernel).decide(tx.txid, decision, who="anna", why="I know")
    assert books.ids() == ([2] if decision is Decision.COMMIT else [1])
    books.lake.collect()
    assert not branches(books)
