"""One empty database of each kind, and books in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from tests.evidence.books import Books, OpenEngine
from tests.services.databases import fresh_name
from tests.services.mariadb import MariaServer

POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgres)
MARIADB = pytest.param("mariadb", marks=pytest.mark.mariadb)
SQLITE = pytest.param("sqlite")
SQLITE_WAL = pytest.param("sqlite-wal")
EVERY = [POSTGRESQL, MARIADB, SQLITE, SQLITE_WAL]


@pytest.fixture
def postgresql_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("foreign_databases")()
    return url


@pytest.fixture
def mariadb_url(maria: MariaServer) -> Iterator[str]:
    name = fresh_name("evidence")
    maria.execute(f"create database {name}")
    yield maria.url(name)
    maria.execute(f"drop database {name}")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'books.db'}"


@pytest.fixture(params=EVERY)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def open_engine(kind: str, request: pytest.FixtureRequest) -> Iterator[OpenEngine]:
    """Give a factory of engines on one database; all are closed after the test."""
    url = request.getfixturevalue(f"{kind.removesuffix('-wal')}_url")
    made: list[Engine] = []

    def make(**settings: Any) -> Engine:  # whatever create_engine takes
        made.append(create_engine(url, **settings))
        if kind == "sqlite-wal":
            event.listen(made[-1], "connect", _write_ahead)
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture
def books(open_engine: OpenEngine) -> Books:
    return Books(open_engine(pool_size=20)).open()


def _write_ahead(connection: Any, record: object) -> None:  # a driver's connection
    connection.execute("PRAGMA journal_mode = WAL").close()
