"""An agency with databases on PostgreSQL."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.flows.saga.agency import Agency
from tests.scene.stored import Stored
from txsaga.wiring.connecting import open_store


@pytest.fixture
def agency(home_url: str, foreign_databases: Callable[[], str]) -> Iterator[Agency]:
    """Give an agency that works in two databases."""
    open_store(home_url).close()
    engines = {name: create_engine(foreign_databases()) for name in ("bank", "flights")}
    facts: list[str] = []
    heard = [lambda fact: facts.append(fact.name)]
    broker = txsaga.connect(home_url, resources=engines, observers=heard, roles=False, answering=False, env={})
    yield Agency(broker, engines, Stored(home_url), facts).open()
    broker.close()
    for engine in engines.values():
        engine.dispose()
