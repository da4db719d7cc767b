"""The PostgreSQL store keeps every promise of the ports."""

import time
from collections.abc import Iterator

import pytest

from txsaga.ports.store import Store
from txsaga.testing import (
    BindingContract,
    BurialContract,
    ClaimContract,
    DecisionContract,
    DoubtContract,
    EndContract,
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
    ResetContract,
    ScheduleContract,
)
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
