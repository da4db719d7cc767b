"""An error at COMMIT means unknown, save where the server clearly said no."""

import sqlite3

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import MARIADB, POSTGRESQL, SQLITE
from txsaga.errors import OutcomeUnknown

ONE = 1


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
@pytest.mark.rule("R14")
def test_a_session_that_is_killed_just_before_the_commit_leaves_the_outcome_unknown(books: Books) -> None:
    def kill(done: bool) -> None:
        assert not done
        books.run(killing)

    with pytest.raises(OutcomeUnknown, match="may or may not have committed") as caught:
        with books.evidence.work(books.id(ONE), kill) as connection:
            enter(connection, 7)
            killing = kill_statement(connection)
    assert caught.value.__cause__ is not None
    assert books.evidence.read(books.id(ONE)) is None
    assert books.evidence.fence(books.id(ONE)) == (False, {})
    assert books.entries() == set()


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_a_session_that_is_killed_earlier_is_a_clear_no(books: Books) -> None:
    with pytest.raises(OperationalError), books.evidence.work(books.id(ONE)) as connection:
        books.run(kill_statement(connection))
        enter(connection, 7)
    assert (books.entries(), books.outcomes()) == (set(), {})


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_an_exception_passes_unchanged_although_the_session_is_gone(books: Books) -> None:
    with pytest.raises(ValueError), books.evidence.work(books.id(ONE)) as connection:
        books.run(kill_statement(connection))
        raise ValueError
    assert books.evidence.fence(books.id(ONE)) == (False, {})


@pytest.mark.parametrize("kind", [POSTGRESQL, SQLITE])
@pytest.mark.rule("R14")
def test_a_deferred_constraint_is_a_clear_no(open_engine: OpenEngine) -> None:
    engine = open_engine()
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON").close())
    books = Books(engine).open()
    books.run("create table line (id int primary key, entry int references entry (id) deferrable initially deferred)")
    seen: list[bool] = []
    with pytest.raises(IntegrityError), books.evidence.work(books.id(ONE), seen.append) as connection:
        connection.execute(text("insert into line (id, entry) values (1, 404)"))
    assert seen == [False]
    assert books.outcomes() == {}
    assert books.evidence.fence(books.id(ONE)) == (False, {})


@pytest.mark.parametrize("kind", [POSTGRESQL])
@pytest.mark.rule("R14")
def test_a_serialization_failure_at_the_commit_is_a_clear_no(open_engine: OpenEngine) -> None:
    books = Books(open_engine(isolation_level="SERIALIZABLE")).open()
    with pytest.raises(OperationalError) as caught:
        with books.evidence.work(books.id(1)) as first, books.evidence.work(books.id(2)) as second:
            for connection, id in ((first, 7), (second, 8)):
                connection.scalars(text("select id from entry")).all()
                enter(connection, id)
    assert getattr(caught.value.orig, "sqlstate", None) == "40001"
    assert (books.entries(), books.outcomes()) == ({8}, {2: 1})


@pytest.mark.parametrize("kind", [SQLITE])
def test_a_reader_who_keeps_sqlite_from_committing_is_a_clear_no(open_engine: OpenEngine) -> None:
    books = Books(open_engine(connect_args={"timeout": 0})).open()
    books.run("insert into entry values (1)")
    with pytest.raises(OperationalError, match="locked"), books.engine.connect() as reader:
        with books.evidence.work(books.id(ONE)) as connection:
            enter(connection, 7)
            reader.exec_driver_sql("BEGIN")
            reader.exec_driver_sql("select * from entry").close()
    assert (books.entries(), books.outcomes()) == ({1}, {})
    assert books.evidence.fence(books.id(ONE)) == (False, {})


class LosesTheAnswer(sqlite3.Connection):
    """A driver that commits and fails to say so."""

    losing = False

    def commit(self) -> None:
        super().commit()
        if LosesTheAnswer.losing:
            raise self.failure

    failure: Exception = sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("kind", [SQLITE])
@pytest.mark.parametrize("failure", [sqlite3.OperationalError("disk I/O error"), RuntimeError("a driver's bug")])
@pytest.mark.rule("R14")
def test_an_error_at_a_commit_that_succeeded_is_no_no(
    open_engine: OpenEngine, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(open_engine(connect_args={"factory": LosesTheAnswer})).open()
    assert books.evidence.database
    monkeypatch.setattr(LosesTheAnswer, "failure", failure)
    announced: list[bool] = []
    with pytest.raises(OutcomeUnknown), books.evidence.work(books.id(ONE), announced.append) as connection:
        enter(connection, 7)
        monkeypatch.setattr(LosesTheAnswer, "losing", True)
    assert announced == [False]
    assert books.evidence.read(books.id(ONE)) == (True, {})


def kill_statement(connection: Connection) -> str:
    """Return what another session runs to end this one."""
    if connection.dialect.name == "postgresql":
        return f"select pg_terminate_backend({connection.scalar(text('select pg_backend_pid()'))}, 5000)"
    return f"kill connection {connection.scalar(text('select connection_id()'))}"
