"""Shops on the home database, and on a store with moods in memory; databases of every kind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

import txsaga
from tests.contracts.timing import Later
from tests.oracle import MemoryStore
from tests.scene.fake_store import FakeHalves, FakeStore, broker_on
from tests.scene.shop import Shop
from tests.scene.shop import closing as closing_shop
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.store.store import Store
from txsaga.testing import FakeClock
from txsaga.wiring.connecting import open_store


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    """Give a store of the test's own."""
    with closing(open_store(home_url)) as store:
        yield store


@pytest.fixture
def stored(home_url: str) -> Stored:
    """Give the rows of the home database."""
    return Stored(home_url)


@pytest.fixture
def shop(home_url: str, stored: Stored) -> Iterator[Shop]:
    """Give a shop on the home database."""
    open_store(home_url).close()
    broker = txsaga.connect(home_url, roles=False, answering=False, env={})
    with closing_shop(Shop(broker, stored.let_pass)) as shop:
        yield shop


@pytest.fixture
def moody_shop() -> Iterator[Shop]:
    """Give a shop on a store that answers as it is told."""
    clock = FakeClock()
    broker = broker_on(FakeStore(MemoryStore(clock)))
    with closing_shop(Shop(broker, clock.advance)) as shop:
        yield shop


@pytest.fixture(params=["shop", "moody_shop"], ids=["home", "memory"])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    """Give a shop on the home database, and one in memory; time passes for everything in it."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Shop)
    if request.param == "shop":
        found.later = _whole_time(request.getfixturevalue("stored"))
    return found


def _whole_time(stored: Stored) -> Later:
    def pass_by(seconds: float) -> None:
        stored.let_pass(seconds)
        stored.let_leases_pass(seconds)

    return pass_by


@pytest.fixture
def halves(moody_shop: Shop) -> FakeHalves:
    """Give the moods of that store."""
    found = moody_shop.store.halves
    assert isinstance(found, FakeHalves)
    return found


@pytest.fixture
def engine_of(
    request: pytest.FixtureRequest, foreign_databases: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[[str], Engine]]:
    """Give a maker of fresh databases of the kind that is named."""
    with ExitStack() as closing:

        def of(kind: str) -> Engine:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path / fresh_name('f')}.db"
            elif kind == "mariadb":
                maria, name = request.getfixturevalue("maria"), fresh_name("bank")
                maria.execute(f"create database {name}")
                url = maria.url(name)
            else:
                url = foreign_databases()
            engine = create_engine(url)
            closing.callback(engine.dispose)
            return engine

        yield of
