"""SQLite's driver begins late and may commit at will; evidence must not depend on it."""

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError

from tests.evidence.books import Books, OpenEngine
from tests.evidence.conftest import SQLITE
from txsaga.errors import ConfigError
from txsaga.evidence.database import SqlEvidence

ONE = 1


@pytest.mark.parametrize("kind", [SQLITE])
def test_sqlite_writes_before_anything_else_runs(books: Books, open_engine: OpenEngine) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        assert getattr(connection.connection.driver_connection, "in_transaction", False)
        rival = open_engine(connect_args={"timeout": 0})
        with pytest.raises(DBAPIError, match="locked"), rival.connect() as other:
            other.exec_driver_sql("BEGIN IMMEDIATE")


@pytest.mark.parametrize("kind", [SQLITE])
def test_a_sqlite_driver_whose_commit_does_nothing_is_refused(open_engine: OpenEngine) -> None:
    class Autocommitting(sqlite3.Connection):
        autocommit = True

    evidence = SqlEvidence(open_engine(connect_args={"factory": Autocommitting}))
    with pytest.raises(ConfigError, match="autocommit=True"):
        evidence.work(f"{'0' * 32}-1-1").__enter__()
