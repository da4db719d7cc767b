"""The store in memory keeps every promise of the ports."""

from collections.abc import Iterator

import pytest

from txsaga.adapters.memory import MemoryStore
from txsaga.ports.store import Store
from txsaga.testing import FakeClock, Later, Unseen, suites


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
