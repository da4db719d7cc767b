"""An empty database, its engine with one session, what is looked at beside it, and the participant."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from tests.resources.conftest import MakeEngine
from tests.resources.postgres_shelf import PostgresShelf
from txsaga.resources.postgres import PostgresParticipant


@pytest.fixture
def url(foreign_databases: Callable[[], str]) -> str:
    """Give the address of an empty database."""
    return foreign_databases()


@pytest.fixture
def engine(url: str, make_engine: MakeEngine) -> Engine:
    """Give the participant's engine; it has one session."""
    return make_engine(url, pool_size=1, max_overflow=0)


@pytest.fixture
def shelf(url: str, make_engine: MakeEngine) -> PostgresShelf:
    """Give what others see of the database."""
    return PostgresShelf(make_engine(url)).open()


@pytest.fixture
def participant(engine: Engine) -> PostgresParticipant:
    """Give the database as a participant."""
    return PostgresParticipant(engine, name="shelf")
