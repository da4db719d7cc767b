"""The PostgreSQL store keeps every promise of the ports."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.engine.stored import Stored
from txsaga.ports.store import Store
from txsaga.testing import Later, Unseen, suites
from txsaga.wiring import open_store

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def later() -> Later:
    return time.sleep  # the database's own clock counts


@pytest.fixture
def unseen(home_url: str) -> Unseen:
    def since(name: str, time: timedelta) -> None:
        Stored(home_url).rows("UPDATE consumer_group SET seen = seen - :time WHERE name = :name", time=time, name=name)

    return since


globals().update(suites())
