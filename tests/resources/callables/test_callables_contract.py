"""Three functions keep every promise of a participant."""

import pytest

from tests.resources.callables.tills import Till, TillShelf
from txsaga.resources.tcc import TccParticipant
from txsaga.store.store import Store
from txsaga.testing import ParticipantContract


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def participant(till: Till, store: Store) -> TccParticipant:
    return till.callables.participant("till", store)


@pytest.fixture
def another(till: Till, store: Store) -> TccParticipant:
    return till.callables.participant("till", store)


@pytest.fixture
def shelf(till: Till, another: TccParticipant, store: Store) -> TillShelf:
    return TillShelf(till, another, store)


@pytest.fixture
def next_door(store: Store) -> tuple[TccParticipant, TillShelf]:
    till = Till()
    participant = till.callables.participant("bank", store)
    return participant, TillShelf(till, participant, store)


@pytest.mark.req("IBM-40", "IBM-48")
class TestCallables(ParticipantContract):
    """The published suite."""

    keeps = False
