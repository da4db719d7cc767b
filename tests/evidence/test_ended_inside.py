"""Local work that commits inside its block: commit() is refused, and a COMMIT past SQLAlchemy is noticed at its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import Connection, RootTransaction, text

from tests.evidence.books import Books, enter
from tests.evidence.conftest import MARIADB, POSTGRESQL
from txsaga.errors import TransactionClosed, TransactionError
from txsaga.evidence.ports import Ran

ONE = 1
REFUSED: dict[str, Callable[[Connection], object]] = {
    "commit()": lambda connection: connection.commit(),
    "of its transaction": lambda connection: current(connection).commit(),
}
RAW: dict[str, Callable[[Connection], object]] = {
    "plain SQL": lambda connection: connection.exec_driver_sql("COMMIT"),
    "text": lambda connection: connection.execute(text("commit")),
    "the driver": lambda connection: connection.connection.commit(),
}
EARLY = "committed before the end of its block, by a COMMIT or by DDL: the work before that is durable"


def current(connection: Connection) -> RootTransaction:
    found = connection.get_transaction()
    assert found is not None
    return found


@pytest.mark.parametrize("end", REFUSED)
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_commit_inside_the_block_is_refused_and_nothing_of_it_is_done(books: Books, end: str, goes_on: bool) -> None:
    announced: list[bool] = []
    with pytest.raises(Exception, match="invalid transaction" if goes_on else "rolled back"):
        with books.evidence.work(books.id(ONE), announced.append) as connection:
            enter(connection, 7)
            if not goes_on:
                REFUSED[end](connection)
            with pytest.raises(TransactionError, match="its work was rolled back"):
                REFUSED[end](connection)
            enter(connection, 8)
    assert (books.entries(), books.outcomes(), announced) == (set(), {}, [])
    with books.evidence.work(books.id(ONE)) as connection:  # the session went back to its pool without a trace
        enter(connection, 9)
    assert (books.entries(), books.outcomes()) == ({9}, {ONE: 1})


def test_the_connection_of_a_block_commits_again_behind_it(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        with connection.begin_nested():
            enter(connection, 8)
    books.run("insert into entry values (9)")
    assert books.entries() == {7, 8, 9}


@pytest.mark.parametrize("end", RAW)
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_commit_past_sqlalchemy_is_told_and_all_of_the_work_is_committed(
    books: Books, end: str, goes_on: bool
) -> None:
    with pytest.raises(TransactionClosed, match=EARLY), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        RAW[end](connection)
        if goes_on:
            enter(connection, 8)
    assert books.entries() == ({7, 8} if goes_on else {7})
    assert books.evidence.read(books.id(ONE)) == (True, {})


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_a_session_that_was_named_anew_is_told_all_the_same(books: Books) -> None:
    with pytest.raises(TransactionClosed, match=EARLY), books.evidence.work(books.id(ONE)) as connection:
        connection.exec_driver_sql("set application_name = 'mine'")
        RAW["plain SQL"](connection)
        enter(connection, 8)
    assert books.entries() == {8}


@pytest.mark.parametrize("kind", [MARIADB])
def test_a_statement_that_commits_by_itself_is_told(books: Books) -> None:
    with pytest.raises(TransactionClosed, match=EARLY), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        connection.exec_driver_sql("create table other (id int)")
        enter(connection, 8)
    assert books.entries() == {7, 8}


@pytest.mark.parametrize("end", RAW)
def test_what_the_block_raises_behind_a_commit_takes_back_what_came_behind_it(books: Books, end: str) -> None:
    with pytest.raises(ValueError), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        RAW[end](connection)
        enter(connection, 8)
        raise ValueError
    assert books.entries() == {7}
    assert books.evidence.read(books.id(ONE)) == (True, {})


@pytest.mark.parametrize("end", RAW)
def test_what_is_rolled_back_behind_a_commit_is_not_said_to_be_there(books: Books, end: str) -> None:
    with pytest.raises(TransactionClosed, match=EARLY), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        RAW[end](connection)
        enter(connection, 8)
        connection.exec_driver_sql("ROLLBACK")
    assert books.entries() == {7}


@pytest.mark.parametrize("end", REFUSED)
def test_a_refusal_that_was_dropped_is_a_rollback_and_not_unknown(books: Books, end: str) -> None:
    with (
        pytest.raises(TransactionError, match="rolled back, as a commit"),
        books.evidence.work(books.id(ONE)) as connection,
    ):
        enter(connection, 7)
        with suppress(TransactionError):
            REFUSED[end](connection)
    assert (books.entries(), books.outcomes()) == (set(), {})


@pytest.mark.parametrize("end", RAW)
def test_a_step_that_commits_by_itself_is_done(books: Books, end: str) -> None:
    def step(connection: Connection) -> object:
        enter(connection, 7)
        RAW[end](connection)
        enter(connection, 8)
        return 9

    assert books.evidence.steps.run(books.id(ONE), "step:1", step, {}, lambda _: None) == Ran(9, True)
    assert books.evidence.steps.output(books.id(ONE), "step:1") == "9"
    assert books.entries() == {7, 8}


@pytest.mark.parametrize("end", [*RAW, *REFUSED])
def test_a_step_that_fails_says_whether_it_had_committed(books: Books, end: str) -> None:
    def step(connection: Connection) -> None:
        enter(connection, 7)
        (RAW | REFUSED)[end](connection)
        raise ValueError

    with pytest.raises(TransactionClosed if end in RAW else TransactionError) as caught:
        books.evidence.steps.run(books.id(ONE), "step:1", step, {}, lambda _: None)
    assert isinstance(caught.value, TransactionClosed) is (end in RAW)
    assert books.entries() == ({7} if end in RAW else set())
