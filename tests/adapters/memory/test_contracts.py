"""The store in memory keeps every promise of the ports."""

from collections.abc import Iterator

import pytest

from txsaga.adapters.memory import MemoryStore
from txsaga.ports.store import Store
from txsaga.testing import (
    DecisionContract,
    DoubtContract,
    EndContract,
    FakeClock,
    HalfContract,
    IntentContract,
    Later,
    LedgerContract,
    LogContract,
    OverviewContract,
    QueueContract,
    RegistryContract,
    ScheduleContract,
)


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


class TestHalves(HalfContract):
    pass


class TestEnds(EndContract):
    pass


class TestLedger(LedgerContract):
    pass


class TestDecisions(DecisionContract):
    pass


class TestLog(LogContract):
    pass


class TestDoubts(DoubtContract):
    pass


class TestQueues(QueueContract):
    pass


class TestIntents(IntentContract):
    pass


class TestRegistry(RegistryContract):
    pass


class TestOverview(OverviewContract):
    pass


class TestSchedule(ScheduleContract):
    pass
