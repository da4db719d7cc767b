"""What tests of kills share: worlds of their own."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.world import World, fresh_world

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

Worlds = Callable[[], AbstractContextManager[World]]


@pytest.fixture(scope="session")
def bank_database(server: "DatabaseServer") -> str:
    """Give the URL of the database that is every world's bank."""
    server.database("bank")
    return server.url("bank")


@pytest.fixture
def worlds(home_database: str, bank_database: str, tmp_path: Path) -> Worlds:
    """Give a maker of worlds."""
    return lambda: fresh_world(home_database, bank_database, tmp_path)


@pytest.fixture
def world(worlds: Worlds) -> Iterator[World]:
    """Give one world."""
    with worlds() as made:
        yield made
