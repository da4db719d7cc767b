"""The PostgreSQL store keeps every promise of the ports."""

from datetime import timedelta

import pytest

from tests.contracts import suites
from tests.contracts.timing import Later, Unseen
from tests.scene.stored import Stored

pytestmark = pytest.mark.postgres


@pytest.fixture
def later(stored: Stored) -> Later:
    return stored.let_all_pass


@pytest.fixture
def unseen(stored: Stored) -> Unseen:
    def since(name: str, time: timedelta) -> None:
        stored.rows("UPDATE consumer_group SET seen = seen - :time WHERE name = :name", time=time, name=name)

    return since


globals().update(suites())
