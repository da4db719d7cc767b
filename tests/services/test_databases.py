"""Every test gets a place of its own on the server of the session, and leaves none behind."""

from collections.abc import Callable

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from tests.services.databases import DatabaseServer, LentDatabases, drop_database, fresh_name

pytestmark = pytest.mark.postgres

SEEN: set[str] = set()


def scalar(url: str, statement: str) -> object:
    """Run one statement in a session of its own."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        return connection.execute(text(statement)).scalar()


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_its_own_namespace_in_one_database(home_url: str, turn: int) -> None:
    url = make_url(home_url)
    namespace = str(url.query["namespace"])
    assert namespace not in SEEN
    SEEN.add(namespace)
    assert scalar(url.difference_update_query(["namespace"]).render_as_string(False), "select 1") == 1


def test_foreign_databases_are_empty_and_apart(foreign_databases: Callable[[], str]) -> None:
    first, second = foreign_databases(), foreign_databases()
    here = "select current_database()"
    assert scalar(first, here) != scalar(second, here)


def test_a_database_is_empty_for_the_next_test_whatever_the_last_one_left(server: DatabaseServer) -> None:
    lent = LentDatabases(server)
    name = lent.take()
    engine = create_engine(server.url(name))
    with engine.connect() as left, engine.connect() as connection:
        left.execute(text("select 1"))
        connection.execute(text("create schema mine"))
        connection.execute(text("create table mine.t ()"))
        connection.execute(text("create table t ()"))
        connection.commit()
        connection.execute(text("insert into t default values"))
        connection.execute(text("prepare transaction 'it''s left'"))
        lent.give_back(name)
        left.invalidate()
        connection.invalidate()
    engine.dispose()
    assert lent.take() == name
    tables = "select count(*) from pg_class where relnamespace >= 16384"
    assert scalar(server.url(name), tables) == 0
    assert scalar(server.url(name), "select count(*) from pg_prepared_xacts where database = current_database()") == 0


def test_a_database_with_settings_of_its_own_is_lent_to_nobody_else(server: DatabaseServer) -> None:
    lent = LentDatabases(server)
    name = lent.take()
    with create_engine(server.url(name), poolclass=NullPool).begin() as connection:
        connection.execute(text(f'alter database "{name}" set lock_timeout = 1'))
    lent.give_back(name)
    assert lent.take() != name


def test_a_database_goes_even_when_something_is_prepared_in_it(server: DatabaseServer) -> None:
    name = fresh_name("gone")
    server.database(name)
    engine = create_engine(server.url(name), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("create table t ()"))
        connection.execute(text("prepare transaction 'it''s open'"))
    drop_database(server, name)
    assert scalar(server.url("postgres"), f"select count(*) from pg_database where datname = '{name}'") == 0
