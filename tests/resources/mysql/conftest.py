"""An empty database, its engine, what is looked at beside it, and the participant."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import MariaShelf
from txsaga.resources.mysql import MysqlParticipant


@pytest.fixture
def url(maria_databases: Callable[[], str]) -> str:
    """Give the address of an empty database."""
    return maria_databases()


@pytest.fixture
def engine(url: str, make_engine: MakeEngine) -> Engine:
    """Give the participant's engine."""
    return make_engine(url, pool_size=1, max_overflow=1)


@pytest.fixture
def shelf(url: str, make_engine: MakeEngine) -> MariaShelf:
    """Give what others see of the database."""
    return MariaShelf(make_engine(url)).open()


@pytest.fixture
def participant(engine: Engine) -> MysqlParticipant:
    """Give the database as a participant."""
    return MysqlParticipant(engine, name="shelf")
