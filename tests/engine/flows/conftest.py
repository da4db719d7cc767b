"""A bank whose flows are worked on by many processes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

import txsaga
from tests.engine.coordinator.bank import Bank
from tests.engine.flows.desks import Desks
from tests.engine.stored import Stored
from tests.services.databases import fresh_name
from txsaga.wiring import open_store

OpenDesks = Callable[..., Desks]


@pytest.fixture
def log_of() -> list[str]:
    """Give the names of the facts in their order, of all processes."""
    return []


@pytest.fixture
def open_desks(
    request: pytest.FixtureRequest,
    home_url: str,
    foreign_databases: Callable[[], str],
    tmp_path: Path,
    log_of: list[str],
) -> Iterator[OpenDesks]:
    """Give a maker of banks with one account in a database of each kind that is named."""
    open_store(home_url).close()
    with ExitStack() as closing:

        def engine(kind: str) -> Engine:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path / fresh_name('f')}.db"
            elif kind == "mariadb":
                maria, name = request.getfixturevalue("maria"), fresh_name("bank")
                maria.execute(f"create database {name}")
                url = maria.url(name)
            else:
                url = foreign_databases()
            made = create_engine(url)
            closing.callback(made.dispose)
            return made

        def desks(current: str = "postgresql", mortgage: str = "postgresql") -> Desks:
            engines = {"current": engine(current), "mortgage": engine(mortgage)}
            broker = closing.enter_context(
                txsaga.connect(home_url, resources=engines, roles=False, answering=False, env={})
            )
            bank = Bank(broker, engines, Stored(home_url)).open()
            return Desks(home_url, engines, bank, [lambda fact: log_of.append(fact.name)])

        yield desks


@pytest.fixture
def desks(open_desks: OpenDesks) -> Desks:
    """Give a bank with two databases on PostgreSQL."""
    return open_desks()
