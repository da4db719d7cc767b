"""Another store of ours keeps every promise of a participant, on PostgreSQL and in memory."""

from collections.abc import Callable, Iterator

import pytest

import txsaga
from tests.oracle import MemoryStore
from tests.resources.broker.broker_shelf import BrokerShelf
from tests.scene.fake_store import broker_on
from tests.services.databases import fresh_name
from txsaga import Broker
from txsaga.resources.broker import StoreParticipant
from txsaga.testing import ParticipantContract
from txsaga.wiring.connecting import open_store

Open = Callable[[str], Broker]


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "memory"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open brokers of stores by their names, each time as another process would."""
    made: list[Broker] = []
    stores: dict[str, MemoryStore] = {}

    def on_postgres(name: str) -> Broker:
        url = f"{request.getfixturevalue('home_url')}_{name}"
        open_store(url).close()
        return txsaga.connect(url, roles=False, answering=False, env={})

    def in_memory(name: str) -> Broker:
        shared = stores.setdefault(name, MemoryStore())
        return broker_on(Another(shared))

    make = on_postgres if request.param == "postgres" else in_memory

    def open_one(name: str) -> Broker:
        made.append(make(name))
        return made[-1]

    yield open_one
    for broker in made:
        broker.close()


class Another(MemoryStore):
    """A store in memory, as another process has it open."""

    def __init__(self, shared: MemoryStore) -> None:
        self.__dict__.update(shared.__dict__)


@pytest.fixture
def broker(opened: Open) -> Broker:
    return opened("here")


@pytest.fixture
def shelf(opened: Open, broker: Broker) -> BrokerShelf:
    return BrokerShelf(opened("here"), broker, broker.kernel.store)


@pytest.fixture
def participant(broker: Broker) -> StoreParticipant:
    return StoreParticipant(broker, name=fresh_name("shelf"))


@pytest.fixture
def another(opened: Open) -> StoreParticipant:
    return StoreParticipant(opened("here"), name="shelf")


@pytest.fixture
def next_door(opened: Open) -> tuple[StoreParticipant, BrokerShelf]:
    beside = opened("there")
    return StoreParticipant(beside, name="next door"), BrokerShelf(opened("there"), beside, beside.kernel.store)


@pytest.mark.req("WM-43")
class TestParticipant(ParticipantContract):
    """The suite."""

    keeps = False
