"""The store in memory keeps every promise of the ports."""

from collections.abc import Iterator

import pytest

from txsaga.adapters.memory import MemoryStore
from txsaga.ports.store import Store
from txsaga.testing import (
    BindingContract,
    BurialContract,
    ClaimContract,
    DecisionContract,
    DoubtContract,
    EndContract,
    ExpiryContract,
    FakeClock,
    GroupContract,
    HalfContract,
    IntentContract,
    Later,
    LedgerContract,
    LogContract,
    OrderContract,
    OverviewContract,
    QueueContract,
    RedeliveryContract,
    RegistryContract,
    ReplayContract,
    ResetContract,
    ScheduleContract,
    TraceContract,
    Unseen,
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


@pytest.fixture
def unseen(clock: FakeClock) -> Unseen:
    return lambda _, since: clock.advance(since.total_seconds())


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


class TestClaims(ClaimContract):
    pass


class TestRedelivery(RedeliveryContract):
    pass


class TestOrder(OrderContract):
    pass


class TestBurials(BurialContract):
    pass


class TestBindings(BindingContract):
    pass


class TestGroups(GroupContract):
    pass


class TestRegistry(RegistryContract):
    pass


class TestOverview(OverviewContract):
    pass


class TestReset(ResetContract):
    pass


class TestSchedule(ScheduleContract):
    pass


class TestExpiry(ExpiryContract):
    pass


class TestTraces(TraceContract):
    pass


class TestReplays(ReplayContract):
    pass
