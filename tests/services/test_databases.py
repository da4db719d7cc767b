"""Every test gets a place of its own on the server of the session, and leaves none behind."""

from collections.abc import Callable

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from tests.services.databases import DatabaseServer, drop_database, fresh_name

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


def test_a_database_goes_even_when_something_is_prepared_in_it(server: DatabaseServer) -> None:
    name = fresh_name("gone")
    server.database(name)
    engine = create_engine(server.url(name), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("create table t ()"))
        connection.execute(text("prepare transaction 'it''s open'"))
    drop_database(server, name)
    assert scalar(server.url("postgres"), f"select count(*) from pg_database where datname = '{name}'") == 0
