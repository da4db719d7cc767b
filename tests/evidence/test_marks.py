"""A session that was rolled back past SQLAlchemy and used again: what it does then is not the work of the row."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, text

from tests.evidence.books import Books, enter
from tests.evidence.conftest import POSTGRESQL
from tests.evidence.test_inbox import message
from txsaga.errors import TransactionError
from txsaga.evidence.inbox import inbox
from txsaga.evidence.local_transaction import mark_of

ONE = 1
BACK: dict[str, Callable[[Connection], object]] = {
    "by the driver": lambda connection: connection.connection.rollback(),
    "in plain SQL": lambda connection: connection.exec_driver_sql("rollback"),
}


@pytest.mark.parametrize("back", BACK)
def test_work_that_goes_on_behind_a_rollback_is_not_committed(books: Books, back: str) -> None:
    with (
        pytest.raises(TransactionError, match="back inside its block"),
        books.evidence.work(books.id(ONE)) as connection,
    ):
        enter(connection, 7)
        BACK[back](connection)
        enter(connection, 8)
    assert (books.entries(), books.outcomes()) == (set(), {})


@pytest.mark.parametrize("kind", [POSTGRESQL])
@pytest.mark.parametrize("back", BACK)
def test_an_effect_that_goes_on_behind_a_rollback_is_not_committed(books: Books, back: str) -> None:
    with (
        pytest.raises(TransactionError, match="back inside the block of its inbox"),
        books.engine.begin() as connection,
        inbox(connection, message(), group="billing"),
    ):
        enter(connection, 7)
        BACK[back](connection)
        enter(connection, 8)
    assert books.entries() == set()


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_a_name_that_the_work_gives_its_session_changes_nothing(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        connection.exec_driver_sql("set application_name = 'mine'")
        enter(connection, 7)
    assert (books.entries(), books.outcomes()) == ({7}, {ONE: 1})


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_a_session_is_named_by_its_transaction_as_long_as_that_lasts(books: Books) -> None:
    with books.engine.connect() as connection:
        connection.exec_driver_sql(f"set application_name = '{'long ' * 12}'")
        connection.commit()
        name = connection.scalar(text("show application_name"))
        connection.rollback()
        for at in (1, 2):
            with connection.begin(), inbox(connection, message(at), group="billing"):
                first = mark_of(connection)
                with inbox(connection, message(at + 2), group="billing"):
                    assert mark_of(connection) == first == connection.scalar(text("show application_name"))
                assert str(first).startswith("long long") and str(first).count("#") == 1
            assert mark_of(connection) is None
            assert connection.scalar(text("show application_name")) == name
            connection.rollback()
