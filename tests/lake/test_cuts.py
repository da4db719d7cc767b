"""A cut sees all of a decision or none of it: tables, topics and rows of one moment, readable behind it too."""

from collections.abc import Callable
from threading import Event, Thread

import pytest

from tests.lake.books import LEDGER, POSTING, Books, rows
from txsaga.errors import ConfigError, OtherCatalog, UnknownTable, UnknownTopic

pytestmark = pytest.mark.postgres


def write(books: Books, id: int) -> None:
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(id))
        tx.table(POSTING).append(rows(id))
        tx.send("booked", str(id).encode())


@pytest.mark.rule("R7")
def test_a_cut_sees_every_decision_whole(books: Books, open_books: Callable[..., Books]) -> None:
    books.create(LEDGER, POSTING)
    write(books, 0)
    over, reader = Event(), open_books()

    def write_on() -> None:
        for id in range(1, 13):
            write(books, id)
        over.set()

    writer = Thread(target=write_on)
    writer.start()
    seen = set()
    while not over.is_set() or 13 not in seen:
        with reader.broker.cut(tables=[LEDGER, POSTING], topics=["booked"]) as cut:
            counts = {cut.scan(name).to_arrow().num_rows for name in (LEDGER, POSTING)} | {sum(cut.heads["booked"])}
        assert len(counts) == 1
        seen |= counts
    writer.join()
    assert len(seen) > 2


def test_what_a_cut_read_stays_readable_behind_it(books: Books) -> None:
    books.create()
    books.append(1)
    with books.broker.cut(tables=[LEDGER]) as cut:
        pass
    with books.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(2))
    assert cut.scan(LEDGER, selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
    assert cut.snapshot(LEDGER) != books.table().metadata.current_snapshot_id
    assert books.ids() == [2]


def test_a_table_without_rows_has_no_snapshot(books: Books) -> None:
    books.create()
    with books.broker.cut(tables=[LEDGER]) as cut:
        assert cut.snapshot(LEDGER) is None
        assert cut.scan(LEDGER).to_arrow().num_rows == 0


def test_a_cut_shows_what_it_was_asked_for(books: Books) -> None:
    books.create(LEDGER, POSTING)
    books.broker.create_topic("news")
    books.broker.create_topic("rest")
    with books.broker.cut(tables=[LEDGER], topics=["news"]) as cut:
        assert (set(cut.tables), set(cut.heads)) == ({LEDGER}, {"news"})
        with pytest.raises(ConfigError, match=r"made without table 'bank\.posting'"):
            cut.scan(POSTING)
    with books.broker.cut() as cut:
        assert (set(cut.tables), set(cut.heads)) == (set(), {"news", "rest"})
        with pytest.raises(ConfigError, match="without tables"):
            cut.scan(LEDGER)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"tables": ["bank.nowhere"]}, UnknownTable),
        ({"tables": ["other.bank.ledger"]}, OtherCatalog),
        ({"tables": LEDGER}, ConfigError),
        ({"topics": ["nowhere"]}, UnknownTopic),
    ],
    ids=str,
)
def test_what_is_not_there_is_an_error(books: Books, asked: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error), books.broker.cut(**asked):  # type: ignore[arg-type]  # mistakes are meant
        pytest.fail("it was opened")
