"""The effect of a message happens once on every database, whoever brings the message again, and when."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, NullPool, StaticPool, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.clerks import clerk
from tests.evidence.conftest import MARIADB, POSTGRESQL, SQLITE
from txsaga import Delivered, inbox
from txsaga.core.identity import HalfId, StoreId
from txsaga.errors import AlreadyDone, ConfigError, EvidenceMissing, InvalidMessage, StoreError, TransactionError
from txsaga.evidence.inbox import forget
from txsaga.evidence.location import create

STORE = StoreId(UUID(int=7), 1)
A_WHILE = 0.3


def message(number: int = 1) -> Delivered:
    """Make a message as a stream gives it."""
    return Delivered(
        topic="orders",
        queue=0,
        offset=number,
        body=b"",
        key=None,
        tag=None,
        headers={},
        ordering_key=None,
        persistent=True,
        unique_key=None,
        born=datetime(2026, 1, 1, tzinfo=UTC),
        half=HalfId(STORE, number, 0, 0, 1, 0, 0),
        index=0,
    )


def work(engine: Engine, entry: int, number: int = 1, group: str = "billing") -> None:
    """Do the effect of a message: write one entry."""
    with engine.begin() as connection, inbox(connection, message(number), group=group):
        enter(connection, entry)


def rows(engine: Engine) -> int:
    """Count what the inbox knows."""
    with engine.connect() as connection:
        return int(connection.scalar(text("select count(*) from txsaga_inbox")))


@pytest.mark.req("RMQ-75", "RMQ-66")
def test_the_effect_of_a_message_happens_once_however_often_it_comes(books: Books) -> None:
    work(books.engine, 1)
    for entry in (2, 3):
        with pytest.raises(AlreadyDone, match=f"message {message().id} .* group 'billing'"):
            work(books.engine, entry)
    assert books.entries() == {1}
    assert rows(books.engine) == 1


@pytest.mark.req("RMQ-75")
def test_another_message_and_another_group_have_effects_of_their_own(books: Books) -> None:
    work(books.engine, 1)
    work(books.engine, 2, number=2)
    work(books.engine, 3, group="Billing")  # letters of another case are another name
    work(books.engine, 4, group="größe")
    assert books.entries() == {1, 2, 3, 4}


@pytest.mark.req("RMQ-75", "RMQ-66")
def test_an_effect_that_is_rolled_back_leaves_no_row_and_is_done_when_the_message_comes_again(books: Books) -> None:
    with pytest.raises(InterruptedError), books.engine.begin() as connection, inbox(connection, message(), group="g"):
        enter(connection, 1)
        raise InterruptedError
    assert (books.entries(), rows(books.engine)) == (set(), 0)
    work(books.engine, 2, group="g")
    assert books.entries() == {2}


@pytest.mark.req("RMQ-75")
def test_a_block_that_raises_leaves_no_row_even_if_the_error_is_swallowed(books: Books) -> None:
    work(books.engine, 9, number=9)
    with books.engine.begin() as connection:
        with pytest.raises(InterruptedError), inbox(connection, message(), group="billing"):
            raise InterruptedError
    assert rows(books.engine) == 1
    work(books.engine, 1)
    assert books.entries() == {1, 9}


@pytest.mark.req("RMQ-75")
def test_a_duplicate_does_not_spoil_the_transaction_that_it_comes_in(books: Books) -> None:
    work(books.engine, 1)
    with books.engine.begin() as connection:
        with pytest.raises(AlreadyDone), inbox(connection, message(), group="billing"):
            pytest.fail("the effect is there")
        enter(connection, 2)
    assert books.entries() == {1, 2}


@pytest.mark.req("RMQ-75")
@pytest.mark.parametrize("commits", [True, False])
def test_a_duplicate_waits_for_the_transaction_of_the_first(books: Books, commits: bool) -> None:
    create(books.engine)
    entered, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with books.engine.begin() as connection, inbox(connection, message(), group="billing"):
            enter(connection, 1)
            entered.set()
            assert go_on.wait(30)
            if not commits:
                raise InterruptedError

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert entered.wait(30)
        other = pool.submit(work, books.engine, 2)
        assert not wait([other], A_WHILE).done
        go_on.set()
        assert type(other.exception(30)) is (AlreadyDone if commits else type(None))
        assert (one.exception(30) is None) is commits
    assert books.entries() == ({1} if commits else {2})


@pytest.mark.req("RMQ-75")
def test_of_eight_that_bring_a_message_at_once_one_does_the_effect(books: Books) -> None:
    create(books.engine)
    together = threading.Barrier(8)

    def bring(entry: int) -> bool:
        together.wait(30)
        try:
            work(books.engine, entry)
        except AlreadyDone:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(bring, range(8)))
    assert done.count(True) == 1
    assert books.entries() == {done.index(True)}


def test_eight_that_come_first_create_the_table_once(open_engine: OpenEngine) -> None:
    books = Books(open_engine(pool_size=20)).open()
    together = threading.Barrier(8)

    def bring(number: int) -> None:
        together.wait(30)
        work(books.engine, number, number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(bring, range(8)))
    assert books.entries() == set(range(8))


def test_the_table_is_not_created_in_the_callers_transaction(books: Books) -> None:
    with pytest.raises(InterruptedError), books.engine.begin() as connection:
        with inbox(connection, message(), group="billing"):
            raise InterruptedError
    assert "txsaga_inbox" in inspect(books.engine).get_table_names()
    assert rows(books.engine) == 0


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_what_the_transaction_did_before_the_first_use_stays(books: Books) -> None:
    with books.engine.begin() as connection:
        assert connection.scalar(text("select count(*) from entry")) == 0
        enter(connection, 1)
        with inbox(connection, message(), group="billing"):
            enter(connection, 2)
    assert books.entries() == {1, 2}
    assert rows(books.engine) == 1


@pytest.mark.parametrize("kind", [POSTGRESQL])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_stricter_transaction_that_read_before_finds_the_new_table(books: Books, level: str) -> None:
    engine = books.engine.execution_options(isolation_level=level)
    with engine.begin() as connection:
        assert connection.scalar(text("select count(*) from entry")) == 0
        with inbox(connection, message(), group="billing"):
            enter(connection, 1)
    with pytest.raises(AlreadyDone):
        work(engine, 2)
    assert books.entries() == {1}


def test_a_table_that_was_dropped_is_created_again_when_the_message_comes_again(books: Books) -> None:
    work(books.engine, 1)
    books.run("drop table txsaga_inbox")
    with pytest.raises(StoreError, match="txsaga_inbox"):
        work(books.engine, 2, number=2)
    work(books.engine, 2, number=2)
    assert books.entries() == {1, 2}


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_a_connection_in_autocommit_is_refused(books: Books) -> None:
    create(books.engine)
    engine = books.engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(ConfigError, match="AUTOCOMMIT") as caught:
        work(engine, 1)
    assert "\n" not in str(caught.value)
    assert (books.entries(), rows(books.engine)) == (set(), 0)


@pytest.mark.parametrize("kind", [SQLITE])
def test_sqlite_in_autocommit_is_put_into_a_transaction(books: Books) -> None:
    engine = books.engine.execution_options(isolation_level="AUTOCOMMIT")
    create(books.engine)
    with pytest.raises(InterruptedError), engine.begin() as connection, inbox(connection, message(), group="billing"):
        enter(connection, 1)
        raise InterruptedError
    assert (books.entries(), rows(books.engine)) == (set(), 0)
    work(engine, 2)
    assert (books.entries(), rows(books.engine)) == ({2}, 1)


@pytest.mark.parametrize("kind", [SQLITE])
def test_a_sqlite_driver_whose_commit_does_nothing_is_refused(open_engine: OpenEngine) -> None:
    class Autocommitting(sqlite3.Connection):
        autocommit = True

    with pytest.raises(ConfigError, match="autocommit=True"):
        work(open_engine(connect_args={"factory": Autocommitting}), 1)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_transaction_that_is_ended_inside_the_block_is_told(books: Books, ending: str) -> None:
    with books.engine.connect() as connection:
        with pytest.raises(TransactionError, match="ended inside the block"), inbox(connection, message(), group="g"):
            getattr(connection, ending)()
            enter(connection, 1)
    assert books.entries() == set()


@pytest.mark.req("RMQ-75")
@pytest.mark.parametrize("kind", [MARIADB])
def test_an_effect_whose_row_the_server_rolled_back_is_not_committed(books: Books) -> None:
    books.run("create table account (id int primary key, balance int)", "insert into account values (1, 0), (2, 0)")
    books.run("create table heavy (id int primary key)")
    create(books.engine)
    waiting = threading.Event()

    def rival() -> None:
        with books.engine.begin() as connection:
            connection.exec_driver_sql("insert into heavy select seq from seq_1_to_500")  # so it is spared
            connection.exec_driver_sql("update account set balance = 2 where id = 2")
            waiting.set()
            connection.exec_driver_sql("update account set balance = 2 where id = 1")

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TransactionError, match="back inside the block"),
        books.engine.begin() as connection,
        inbox(connection, message(), group="billing"),
    ):
        connection.exec_driver_sql("update account set balance = 1 where id = 1")
        other = pool.submit(rival)
        assert waiting.wait(30)
        with pytest.raises(DBAPIError, match="Deadlock"):
            connection.exec_driver_sql("update account set balance = 1 where id = 2")
        enter(connection, 7)
        other.result(30)
    assert (books.entries(), rows(books.engine)) == (set(), 0)


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_an_error_that_is_swallowed_on_postgresql_is_told(books: Books) -> None:
    with (
        pytest.raises(TransactionError, match="back inside the block"),
        books.engine.begin() as connection,
        inbox(connection, message(), group="billing"),
        pytest.raises(DBAPIError),
    ):
        connection.exec_driver_sql("select 1 / 0")
    assert rows(books.engine) == 0


@pytest.mark.parametrize("kind", [POSTGRESQL])
def test_what_the_inbox_says_survives_a_crash_whatever_the_session_has_chosen(books: Books) -> None:
    with books.engine.begin() as connection:
        connection.exec_driver_sql("set synchronous_commit = off")
        with inbox(connection, message(), group="billing"):
            assert connection.scalar(text("show synchronous_commit")) == "on"


WRONG: dict[str, tuple[Callable[[Connection], object], type[Exception], str]] = {
    "no connection": (lambda c: inbox(c.engine, message(), group="g"), ConfigError, "the connection is Engine"),  # type: ignore[arg-type]
    "no message": (lambda c: inbox(c, "m-1", group="g"), ConfigError, "the message is str"),  # type: ignore[arg-type]
    "no group": (lambda c: inbox(c, message()), ConfigError, "group="),
    "a group that is no text": (lambda c: inbox(c, message(), group=7), InvalidMessage, "group name is int"),  # type: ignore[arg-type]
    "a group that is empty": (lambda c: inbox(c, message(), group=""), InvalidMessage, "has 1 to 127 characters"),
}


@pytest.mark.parametrize("kind", [SQLITE])
@pytest.mark.parametrize(("call", "error", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_told_in_one_line_before_anything_is_written(
    open_engine: OpenEngine, call: Callable[[Connection], object], error: type[Exception], told: str
) -> None:
    engine = open_engine()
    with engine.connect() as connection, pytest.raises(error, match=told) as caught:
        call(connection)
    assert "\n" not in str(caught.value)
    assert not inspect(engine).get_table_names()


@pytest.mark.parametrize("kind", [SQLITE])
def test_where_the_table_would_be_created_in_the_callers_way_the_error_says_what_to_do(
    open_engine: OpenEngine, sqlite_url: str
) -> None:
    Books(open_engine()).open()
    shared = create_engine(sqlite_url, poolclass=StaticPool)
    for engine in (shared, open_engine()):
        with engine.begin() as connection:
            enter(connection, 1)
            with pytest.raises(EvidenceMissing, match="txsaga barrier create") as caught:
                inbox(connection, message(), group="g").__enter__()
            assert "\n" not in str(caught.value)
            connection.rollback()
    shared.dispose()
    create(open_engine())
    with open_engine().begin() as connection:
        enter(connection, 1)
        with inbox(connection, message(), group="g"):
            pass


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
def test_a_user_who_may_not_create_the_table_is_told_what_the_owner_must_do(open_engine: OpenEngine) -> None:
    with clerk(open_engine()) as engine, pytest.raises(EvidenceMissing, match="txsaga barrier ddl"):
        with engine.begin() as connection:
            inbox(connection, message(), group="g").__enter__()


def test_a_database_that_we_do_not_know_is_refused() -> None:
    engine = create_engine("sqlite://", poolclass=NullPool)
    engine.dialect.name = "oracle"
    with engine.connect() as connection, pytest.raises(ConfigError, match="'oracle'"):
        inbox(connection, message(), group="g").__enter__()


def test_old_rows_are_forgotten_and_young_ones_stay(books: Books) -> None:
    for number in range(3):
        work(books.engine, number, number)
    long_ago = {"postgresql": "now() - interval '31 days'", "sqlite": "datetime('now', '-31 days')"}
    moment = long_ago.get(books.engine.dialect.name, "now() - interval 31 day")
    with books.engine.begin() as connection:
        update = text(f"update txsaga_inbox set at = {moment} where message = :message")
        connection.execute(update, {"message": message(1).id})
    assert forget(books.engine, timedelta(days=32)) == 0
    assert forget(books.engine, timedelta(days=30)) == 1
    assert rows(books.engine) == 2
    work(books.engine, 10, 1)
    with pytest.raises(AlreadyDone):
        work(books.engine, 11, 2)


def test_where_there_is_no_inbox_nothing_can_be_forgotten(open_engine: OpenEngine) -> None:
    engine = open_engine()
    with pytest.raises(EvidenceMissing):
        forget(engine, timedelta(days=30))
    assert not inspect(engine).get_table_names()


def test_the_first_use_on_an_engine_that_is_known_costs_no_further_look(books: Books) -> None:
    work(books.engine, 1)
    said: list[str] = []
    event.listen(books.engine, "before_cursor_execute", lambda *call: said.append(call[2]))
    work(books.engine, 2, number=2)
    assert 2 <= len(said) <= 4, said  # the row and the effect; SQLite begins, some look again before they commit
