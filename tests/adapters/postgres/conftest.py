"""The scene of the rules, for tests that need whole brokers; a file may give its own under the same name."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.engine.stored import Stored
from tests.rules.scene import books, broker, library, open_broker, probe, shop, store_url
from txsaga.store.store import PostgresStore
from txsaga.wiring.connecting import open_store

__all__ = ["books", "broker", "library", "open_broker", "probe", "shop", "store_url"]


@pytest.fixture
def store(home_url: str) -> Iterator[PostgresStore]:
    """Give a store of the test's own."""
    with closing(open_store(home_url)) as store:
        yield store


@pytest.fixture
def stored(home_url: str) -> Stored:
    """Give the rows of that store."""
    return Stored(home_url)
