"""The PostgreSQL store keeps every promise of the ports."""

import time
from datetime import timedelta

import pytest

from tests.contracts import suites
from tests.contracts.timing import Later, Unseen
from tests.scene.stored import Stored

pytestmark = pytest.mark.postgres


@pytest.fixture
def later() -> Later:
    return time.sleep  # the database's own clock counts


@pytest.fixture
def unseen(home_url: str) -> Unseen:
    def since(name: str, time: timedelta) -> None:
        Stored(home_url).rows("UPDATE consumer_group SET seen = seen - :time WHERE name = :name", time=time, name=name)

    return since


globals().update(suites())
