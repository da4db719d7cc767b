"""The store in memory keeps every promise of the ports."""

from collections.abc import Iterator

import pytest

from tests.contracts import suites
from tests.contracts.timing import Later, Unseen
from tests.oracle import MemoryStore
from txsaga.store.store import Store
from txsaga.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Store]:
    store = MemoryStore(clock)
    yield store
    store.close()


@pytest.fixture
def later(clock: FakeClock) -> Later:
    return clock.advance


@pytest.fixture
def unseen(clock: FakeClock) -> Unseen:
    return lambda _, since: clock.advance(since.total_seconds())


globals().update(suites())
