"""PostgreSQL keeps every promise of a participant."""

from collections.abc import Callable

import pytest

from tests.resources.conftest import MakeEngine
from tests.resources.postgres_shelf import PostgresShelf
from txsaga.resources.participant import Participant
from txsaga.testing import ParticipantContract
from txsaga.wiring.resources import participant_for

pytestmark = [pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def participant(url: str, make_engine: MakeEngine) -> Participant:
    return participant_for(make_engine(url, pool_size=2, max_overflow=0), "shelf")


@pytest.fixture
def another(url: str, make_engine: MakeEngine) -> Participant:
    return participant_for(make_engine(url), "shelf")


@pytest.fixture
def next_door(foreign_databases: Callable[[], str], make_engine: MakeEngine) -> tuple[Participant, PostgresShelf]:
    beside = foreign_databases()
    return participant_for(make_engine(beside), "next door"), PostgresShelf(make_engine(beside)).open()


class TestParticipant(ParticipantContract):
    """The suite."""
