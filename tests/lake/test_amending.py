"""What an amendment publishes takes the place of what it amends: by an overwrite, never beside it."""

from collections.abc import Callable

import pytest

from tests.lake.books import LEDGER, MONDAY, POSTING, Books, rows
from txsaga.errors import ConfigError

pytestmark = [pytest.mark.postgres, pytest.mark.req("CARD-03")]

Open = Callable[..., Books]


def posted(books: Books, amend: str, *ids: int) -> None:
    """Write the ledger of a day in a flow, and commit it."""
    with books.producer.begin_flow(key="night", amend=amend) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).overwrite(rows(*ids), where={"day": MONDAY})
        flow.end()


def test_an_overwrite_takes_the_place_of_what_was_committed(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    posted(books, "one", 1, 2)
    posted(books, "two", 3)
    assert books.ids() == [3]


def test_rows_are_not_appended_beside_those_that_are_amended(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER, POSTING)
    with books.producer.begin_flow(key="night", amend="one") as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(1, 2))
        flow.end()
    with books.producer.begin_flow(key="night", amend="two") as flow:
        refused = pytest.raises(ConfigError, match=r"appended rows would duplicate them; replace them with overwrite")
        with refused, flow.step("ledger"):
            flow.table(LEDGER).append(rows(1, 2))
        with flow.step("ledger"):
            flow.table(LEDGER).overwrite(rows(4), where={"day": MONDAY})
        with flow.step("posting"):
            flow.table(POSTING).append(rows(5))
        flow.end()
    assert (books.ids(), books.ids(POSTING)) == ([4], [5])


def test_rows_are_not_appended_beside_those_of_an_amendment_before(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    with books.producer.begin_flow(key="night", amend="one") as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(1, 2))
        flow.end()
    with books.producer.begin_flow(key="night", amend="two") as flow:
        flow.end()
    with books.producer.begin_flow(key="night", amend="three") as flow:
        with pytest.raises(ConfigError, match="would duplicate them"), flow.step("ledger"):
            flow.table(LEDGER).append(rows(1, 2))
        with flow.step("ledger"):
            flow.table(LEDGER).overwrite(rows(3), where={"day": MONDAY})
        flow.end()
    assert books.ids() == [3]
