"""What a session did on a branch and beside it: what looked for rows is no append, and others are not taken for it."""

import pytest

from tests.lake.books import LEDGER, TUESDAY, Books, rows
from tests.lake.branching import Session, add
from tests.lake.test_flows import Opinion
from txsaga.errors import BranchMissed, TableMoved
from txsaga.lake import opening
from txsaga.lake.table import MARK, WriteMode, mark_of

pytestmark = pytest.mark.postgres

MERGE = "MERGE INTO {table} t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
LOOKING = {
    "a merge": MERGE,
    "in small letters": MERGE.lower(),
    "behind what is no statement": f"-- INSERT INTO it\n/* x */ {MERGE} /* y */ INSERT INTO",
    "an overwrite": "INSERT OVERWRITE {table} SELECT * FROM u",
}
ADDING = ("INSERT INTO {table} VALUES (7)", "\n -- ours\n/* of\n today */ insert  into table {table} SELECT * FROM u")


@pytest.fixture
def session(books: Books, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setitem(opening.BRANCH_WRITERS, "tests", "tests.lake.branching:SessionWriter")
    return Session(books)


@pytest.mark.parametrize("how", LOOKING)
def test_two_that_looked_for_a_row_and_found_none_add_it_once(books: Books, session: Session, how: str) -> None:
    books.create()
    books.append(1)
    with pytest.raises(TableMoved, match="the branch searches"), books.producer.transaction() as late:
        with late.table(LEDGER).branch(session) as ledger:
            ledger.sql(LOOKING[how])
            ledger.sql(ADDING[0])
        with books.producer.transaction() as tx, tx.table(LEDGER).branch(session) as first:
            first.sql(LOOKING[how])
    assert books.ids() == [1, 7]


def test_what_looked_for_a_row_is_carried_over_where_others_changed_another_partition(
    books: Books, session: Session
) -> None:
    books.create()
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(session, rebase=True) as ledger:
            ledger.sql(MERGE)
        books.append(8, day=TUESDAY)
    assert books.ids() == [7, 8]


def test_a_statement_that_adds_is_an_append_whatever_it_begins_with(books: Books, session: Session) -> None:
    books.create()
    with books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(session) as ledger:
            for each in ADDING:
                ledger.sql(each)
        books.append(8)
    assert ledger.write is not None and ledger.write.mode is WriteMode.APPEND
    assert books.ids() == [7, 7, 8]


def test_a_gate_sees_what_was_added_though_the_table_was_partitioned_anew(books: Books) -> None:
    books.create()
    books.append(1)
    gate = Opinion(yes=True)
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(gate=gate) as ledger:
        add(books, ledger, 2)
        with books.table().update_spec() as change:
            change.add_identity("note")
        add(books, ledger, 3)
    assert ledger.write is not None and ledger.write.manifest is None
    (subject,) = gate.seen
    added = set(books.table().inspect.files().column("file_path").to_pylist())
    assert subject.count == 2 and len(subject.files) == 2 and {each.file_path for each in subject.files} < added
    assert books.ids() == [1, 2, 3]


def test_another_session_of_the_application_is_not_called_a_mistake(books: Books, session: Session) -> None:
    books.create()
    books.append(1)
    with pytest.raises(TableMoved, match="another session of this Spark application"):
        with books.producer.transaction() as tx, tx.table(LEDGER).branch(session) as ledger:
            ledger.sql(ADDING[0])
            books.table().delete("id = 1", snapshot_properties={"spark.app.id": session.application})
    assert books.ids() == []


def test_engines_without_an_application_are_not_taken_for_one_another(books: Books, session: Session) -> None:
    books.create()
    books.append(1)
    session.application = ""
    with books.producer.transaction() as tx, tx.table(LEDGER).branch(session) as ledger:
        ledger.sql(ADDING[0])
        books.table().delete("id = 1")
    assert books.ids() == [7]


def test_what_bears_the_mark_was_written_past_the_branch(books: Books, session: Session) -> None:
    books.create()
    with pytest.raises(BranchMissed, match="past its branch"), books.producer.transaction() as tx:
        with tx.table(LEDGER).branch(session) as ledger:
            ledger.sql(ADDING[0])
            table = books.table()
            marked = {MARK: mark_of(ledger.branch)}
            table.append(rows(8).cast(table.schema().as_arrow()), snapshot_properties=marked)
    assert books.ids() == [8]
