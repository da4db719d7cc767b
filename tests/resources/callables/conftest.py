"""A store for reservations, on PostgreSQL and in memory."""

from collections.abc import Iterator

import pytest

from tests.oracle import MemoryStore
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Give a new store."""
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = open_store(request.getfixturevalue("home_url"))
    yield store
    store.close()
