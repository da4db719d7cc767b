"""A bank with two databases on PostgreSQL, or with databases of the kinds that a test names."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import txsaga
from tests.flows.coordinated.bank import Bank
from tests.flows.coordinated.looped import LoopedBank
from tests.scene.stored import Stored
from txsaga.wiring.connecting import open_store

OpenBank = Callable[..., Bank]


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


@pytest.fixture
def opened(home_url: str, engine_of: Callable[[str], Engine]) -> Iterator[OpenBank]:
    """Give a bank with one account in a database of each kind that is named."""
    open_store(home_url).close()
    with ExitStack() as closing:

        def bank(*kinds: str) -> Bank:
            engines = {f"{kind}{at}": engine_of(kind) for at, kind in enumerate(kinds)}
            broker = txsaga.connect(home_url, resources=engines, roles=False, answering=False, env={})
            closing.callback(broker.close)
            return Bank(broker, engines, Stored(home_url)).open()

        yield bank


@pytest.fixture
def looping(home_url: str, foreign_databases: Callable[[], str]) -> Iterator[LoopedBank]:
    """Give a bank with two databases whose transfers run within an event loop."""
    open_store(home_url).close()
    urls = {name: foreign_databases() for name in ("current", "mortgage")}
    engines = {name: create_engine(url) for name, url in urls.items()}
    loops = {name: create_async_engine(url) for name, url in urls.items()}
    broker = txsaga.connect(home_url, resources=loops, roles=False, answering=False, env={})
    yield LoopedBank(Bank(broker, engines, Stored(home_url)).open(), loops)
    broker.close()
    for engine in engines.values():
        engine.dispose()
