"""COMMIT is sent past the driver, and where somebody listens to commits, by the driver."""

from __future__ import annotations

import pytest
from psycopg.pq.abc import PGconn
from sqlalchemy import Connection, event
from sqlalchemy.exc import IntegrityError

from tests.adapters.evidence.books import Books, OpenEngine, enter
from tests.adapters.evidence.conftest import POSTGRESQL
from txsaga.adapters.evidence import libpq
from txsaga.errors import OutcomeUnknown

pytestmark = pytest.mark.parametrize("kind", [POSTGRESQL])


@pytest.fixture
def books(open_engine: OpenEngine) -> Books:
    return Books(open_engine(pool_size=1, max_overflow=0)).open()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the commits that are sent past the driver."""
    texts, send = list[str](), libpq.send

    def noted(session: PGconn, text: str) -> None:
        if text == "COMMIT":
            texts.append(text)
        send(session, text)

    monkeypatch.setattr(libpq, "send", noted)
    return texts


def work(books: Books, id: int) -> None:
    with books.evidence.work(books.id(id)) as connection:
        enter(connection, id)


def test_it_is_sent_once_and_the_session_comes_back_idle(books: Books, ends: list[str]) -> None:
    for id in (1, 2, 3):
        work(books, id)
        assert books.entries() >= {id}
    assert ends == ["COMMIT"] * 3
    assert books.outcomes().keys() == {1, 2, 3}


def test_who_listens_to_commits_hears_of_it_before_and_may_add_to_it(books: Books, ends: list[str]) -> None:
    @event.listens_for(books.engine, "commit")
    def add(connection: Connection) -> None:
        connection.exec_driver_sql("insert into entry values (77) on conflict do nothing")

    work(books, 1)
    assert books.entries() == {1, 77}
    assert ends == []


def test_a_commit_within_an_unended_pipeline_is_the_drivers(books: Books, ends: list[str]) -> None:
    with books.evidence.work(books.id(1)) as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.pipeline():
            driver.execute("insert into entry values (1)")
        enter(connection, 2)
    assert books.entries() == {1, 2}
    assert ends == ["COMMIT"]  # the pipeline is over by then


def test_what_its_error_says_is_what_the_driver_would_say(books: Books) -> None:
    books.run("create table part (of_entry int references entry deferrable initially deferred)")
    with pytest.raises(IntegrityError) as caught, books.evidence.work(books.id(1)) as connection:
        connection.exec_driver_sql("insert into part values (4711)")
    diag = caught.value.orig.diag  # type: ignore[union-attr]  # the driver's error
    assert (diag.sqlstate, diag.table_name, diag.severity_nonlocalized) == ("23503", "part", "ERROR")
    assert not caught.value.connection_invalidated
    assert books.outcomes() == {}
    work(books, 2)
    assert books.entries() == {2}


def test_an_answer_that_never_comes_leaves_the_outcome_unknown(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    send = libpq.send

    def lost_behind(session: PGconn, text: str) -> None:
        send(session, text)
        if text == "COMMIT":
            raise libpq.SessionLost("the line went down")

    with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown, match="may or may not have committed"):
        patch.setattr(libpq, "send", lost_behind)
        work(books, 1)
    work(books, 2)  # the session is not used again
    assert books.entries() == {1, 2}
