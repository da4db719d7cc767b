"""Engines that are closed after the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymysql.err import OperationalError
from sqlalchemy import Engine, NullPool, create_engine

from tests.services.databases import fresh_name
from tests.services.mariadb import MariaServer

MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Give a factory of engines."""
    made: list[Engine] = []

    def make(url: str, **settings: Any) -> Engine:  # whatever create_engine takes
        made.append(create_engine(url, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture
def maria_databases(maria: MariaServer) -> Iterator[Callable[[], str]]:
    """Give a factory of empty databases on MariaDB, gone after the test; nothing may stay prepared there."""
    made: list[str] = []

    def make() -> str:
        made.append(fresh_name("shelf"))
        maria.execute(f"create database {made[-1]}")
        return maria.url(made[-1])

    yield make
    roll_back_all(maria.url("mysql"))
    for name in made:
        _drop(maria, name)


def _drop(maria: MariaServer, name: str) -> None:
    """Drop a database; a branch whose session has only just ended is rolled back first."""
    for left in reversed(range(10)):
        try:
            return maria.execute(f"set statement lock_wait_timeout = 2 for drop database {name}")
        except OperationalError:
            if not left:
                raise
            roll_back_all(maria.url("mysql"))


def roll_back_all(url: str) -> None:
    """Roll back whatever a test left prepared: it would block the drop of its database."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        for row in connection.exec_driver_sql("XA RECOVER FORMAT='SQL'").all():
            connection.exec_driver_sql(f"XA ROLLBACK {row.data}")
