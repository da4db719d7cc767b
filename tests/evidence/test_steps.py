"""A step is done once, with its row; a barrier keeps it out for ever."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tests.evidence.books import Books, enter
from txsaga.errors import ConfigError, StepRefused
from txsaga.evidence.ports import Ran, Work

TX = 7
STEP, UNDO = "step:3", "undo:3"
WRITE = "insert into entry (id) values (:id)"


def ran(books: Books, row: str, work: Work | str, **input: object) -> Ran:
    return books.evidence.steps.run(books.id(TX), row, work, input, lambda _: None)


def rows(books: Books) -> dict[str, int]:
    with books.engine.connect() as connection:
        found = connection.exec_driver_sql("select branch, outcome from txsaga_evidence")
        return {branch: outcome for branch, outcome in found}


def test_a_step_leaves_its_row_in_its_own_commit(books: Books) -> None:
    assert ran(books, STEP, partial(enter, id=1)) == Ran(None, True)
    assert (books.entries(), rows(books)) == ({1}, {STEP: 1})


def test_what_a_step_returned_is_kept_beside_its_row(books: Books) -> None:
    def book(connection: Connection) -> object:
        enter(connection, 1)
        return {"id": 5}

    assert ran(books, STEP, book) == Ran({"id": 5}, True)
    assert ran(books, STEP, book) == Ran({"id": 5}, False)
    assert books.entries() == {1}
    assert books.evidence.steps.output(books.id(TX), STEP) == '{"id": 5}'


def test_a_statement_is_a_step(books: Books) -> None:
    assert ran(books, STEP, WRITE, id=1) == Ran(1, True)
    assert ran(books, UNDO, "select id from entry") == Ran([[1]], True)
    assert rows(books) == {STEP: 1, UNDO: 1}


def test_of_a_step_that_fails_nothing_is_there(books: Books) -> None:
    ran(books, STEP, WRITE, id=1)
    with pytest.raises(DBAPIError):
        ran(books, "step:4", WRITE, id=1)
    with pytest.raises(ValueError):
        ran(books, "step:5", lambda _: int("x"))
    assert rows(books) == {STEP: 1}


def strange(connection: Connection) -> object:
    enter(connection, 1)
    return object()


def test_what_is_no_json_rolls_its_step_back(books: Books) -> None:
    with pytest.raises(ConfigError, match="must be JSON"):
        ran(books, STEP, strange)
    assert (books.entries(), rows(books)) == (set(), {})


@pytest.mark.rule("R6")
def test_a_step_that_comes_after_its_compensation_is_refused(books: Books) -> None:
    assert books.evidence.steps.fence(books.id(TX), STEP) is False
    with pytest.raises(StepRefused, match="step 3 of"):
        ran(books, STEP, WRITE, id=1)
    assert (books.entries(), rows(books)) == (set(), {STEP: 2})
    assert books.evidence.steps.fence(books.id(TX), STEP) is False


def test_a_step_that_was_done_can_not_be_kept_out(books: Books) -> None:
    ran(books, STEP, WRITE, id=1)
    assert books.evidence.steps.fence(books.id(TX), STEP) is True
    assert rows(books) == {STEP: 1}


def test_a_step_that_is_under_way_is_neither(books: Books) -> None:
    def look(connection: Connection) -> object:
        enter(connection, 1)
        return books.evidence.steps.fence(books.id(TX), STEP)

    assert ran(books, STEP, look).output is None
    assert rows(books) == {STEP: 1}


def test_a_step_is_running_as_long_as_its_transaction_is_open(books: Books) -> None:
    steps = books.evidence.steps

    def look(connection: Connection) -> object:
        enter(connection, 1)
        return steps.is_running(books.id(TX), STEP)

    assert (steps.is_running(books.id(TX), STEP), rows(books)) == (False, {})
    assert ran(books, STEP, look).output is True
    assert steps.is_running(books.id(TX), STEP) is False
    assert ran(books, UNDO, "select id from entry") == Ran([[1]], True)


def test_steps_of_other_transactions_and_local_work_say_nothing_of_each_other(books: Books) -> None:
    ran(books, STEP, WRITE, id=1)
    assert books.evidence.read(books.id(TX)) is None
    assert books.evidence.steps.fence(books.id(TX + 1), STEP) is False
    assert books.evidence.fence(books.id(TX)) == (False, {})


def test_the_facts_of_a_commit_stand_around_it(books: Books) -> None:
    told: list[bool] = []

    def announce(done: bool) -> None:
        told.append(done)
        assert (1 in books.entries()) is done

    books.evidence.steps.run(books.id(TX), STEP, WRITE, {"id": 1}, announce)
    assert told == [False, True]
