"""A user's pooled sessions come back as they were, and the user's settings don't bend what is ours."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import MARIADB, POSTGRESQL
from txsaga.core.decision import Decision
from txsaga.errors import RightsMissing
from txsaga.flows.branch import Finish
from txsaga.testing.participant_contract import new_branch
from txsaga.wiring.resources import participant_for

COMMIT = Decision.COMMIT
SERVERS = pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
ONLY_POSTGRESQL = pytest.mark.parametrize("kind", [POSTGRESQL])
SINGLE: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 2}


def use(books: Books) -> None:
    """Do whatever takes a session of the pool: local work, questions, a barrier, and what ends branches."""
    with books.evidence.work(books.id(1)) as connection:
        enter(connection, 1)
    assert books.evidence.read(books.id(1)) is not None
    assert books.evidence.fence(books.id(2)) is not None
    assert participant_for(books.engine, "books").finish(new_branch(), Decision.ROLLBACK) is Finish.DONE


@SERVERS
def test_what_commits_by_itself_goes_on_to(open_engine: OpenEngine) -> None:
    books = Books(open_engine(**SINGLE, connect_args={"autocommit": True})).open()
    for id in (10, 11):
        with books.engine.connect() as connection:
            enter(connection, id)
        if id == 10:
            use(books)
    assert books.entries() == {1, 10, 11}


def serializable(driver: psycopg.Connection[Any], _: object) -> None:
    driver.isolation_level = psycopg.IsolationLevel.SERIALIZABLE


def of_the_session(driver: Any, _: object) -> None:  # pymysql's connection
    driver.cursor().execute("set session transaction isolation level serializable")


@SERVERS
def test_a_level_that_the_pool_was_given_stays(open_engine: OpenEngine, kind: str) -> None:
    books = Books(open_engine(**SINGLE)).open()
    event.listen(books.engine, "connect", serializable if kind == "postgresql" else of_the_session)
    books.engine.dispose()
    use(books)
    with books.engine.connect() as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"


@SERVERS
@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_what_an_engine_on_the_same_pool_asks_for_stays_with_it(
    open_engine: OpenEngine, level: Any
) -> None:  # one of its words
    whole = open_engine(**SINGLE)
    books = Books(whole).open()
    derived = Books(whole.execution_options(isolation_level=level), store=books.store)
    use(derived)
    with whole.connect() as connection:
        enter(connection, 5)
        assert connection.get_isolation_level() not in ("AUTOCOMMIT", "SERIALIZABLE")
    assert books.entries() == {1}


@ONLY_POSTGRESQL
def test_a_session_that_comes_in_a_transaction_is_used_as_it_comes(open_engine: OpenEngine) -> None:
    books = Books(open_engine(**SINGLE)).open()

    @event.listens_for(books.engine, "checkout")
    def _looks_elsewhere(driver: psycopg.Connection[Any], *_: object) -> None:
        driver.execute("set search_path = public")

    use(books)
    assert books.entries() == {1}


TENANTS = {None: "tenant", "public": "tenant"}


@SERVERS
def test_options_of_the_users_statements_do_not_reach_ours(open_engine: OpenEngine) -> None:
    engine = open_engine(**SINGLE)
    Books(engine).open()
    books = Books(engine.execution_options(schema_translate_map=TENANTS))
    use(books)
    id = books.id(3)
    with books.evidence.work(id) as connection:
        connection.execution_options(stream_results=True, yield_per=10)
        books.evidence.fill(connection, id, 1, b"late")
        assert books.evidence.filled(connection, id) == {1}
    found = books.evidence.read(id)
    assert found is not None
    assert found.bodies == {1: b"late"}


@ONLY_POSTGRESQL
def test_a_pool_that_discards_everything_costs_round_trips_alone(open_engine: OpenEngine) -> None:
    books = Books(open_engine(**SINGLE)).open()

    @event.listens_for(books.engine, "reset")
    def _discard(driver: psycopg.Connection[Any], *_: object) -> None:
        driver.rollback()
        driver.autocommit = True
        driver.execute("DISCARD ALL")
        driver.autocommit = False

    for id in range(1, 13):
        with books.evidence.work(books.id(id)):
            pass
    assert books.outcomes().keys() == set(range(1, 13))


@ONLY_POSTGRESQL
def test_a_role_that_may_not_read_the_row_is_told_so(open_engine: OpenEngine) -> None:
    books = Books(open_engine(**SINGLE)).open()
    role = "reads_no_evidence"
    with books.engine.begin() as connection:
        if not connection.scalar(text(f"select count(*) from pg_roles where rolname = '{role}'")):
            connection.exec_driver_sql(f"create role {role}")
    with pytest.raises(RightsMissing, match="grant it SELECT, or RESET ROLE"):
        with books.evidence.work(books.id(1)) as connection:
            connection.exec_driver_sql("set local application_name = 'told no more'")
            connection.exec_driver_sql(f"set local role {role}")
    assert books.evidence.read(books.id(1)) is None
