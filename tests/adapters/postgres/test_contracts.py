"""The PostgreSQL store keeps every promise of the ports."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.engine.stored import Stored
from txsaga.ports.store import Store
from txsaga.testing import (
    BindingContract,
    BurialContract,
    ClaimContract,
    DecisionContract,
    DoubtContract,
    EndContract,
    ExpiryContract,
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
