"""A bank with two databases on PostgreSQL."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.engine.coordinator.bank import Bank
from tests.engine.stored import Stored
from txsaga.wiring import open_store


@pytest.fixture
def log_of() -> list[str]:
    """Give the names of the facts in their order."""
    return []


@pytest.fixture
def bank(home_url: str, foreign_databases: Callable[[], str], log_of: list[str]) -> Iterator[Bank]:
    """Give a bank whose accounts lie in two databases."""
    open_store(home_url).close()
    engines = {name: create_engine(foreign_databases()) for name in ("current", "mortgage")}
    heard = [lambda fact: log_of.append(fact.name)]
    broker = txsaga.connect(home_url, resources=engines, observers=heard, roles=False, answering=False, env={})
    yield Bank(broker, engines, Stored(home_url)).open()
    broker.close()
    for engine in engines.values():
        engine.dispose()
