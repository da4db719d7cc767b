"""A service over HTTP keeps every promise of a participant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.resources.callables import tills
from tests.resources.callables.service import SECRET, Till
from txsaga.resources.http import HttpService
from txsaga.resources.tcc import TccParticipant, TccWork
from txsaga.store.store import Store
from txsaga.testing import ParticipantContract

Open = Callable[[str], Till]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Run services by their names."""
    running: list[tuple[Till, Thread]] = []

    def open_one(name: str) -> Till:
        till = Till(tmp_path / name)
        thread = Thread(target=till.serve_forever, args=(0.01,))
        thread.start()
        running.append((till, thread))
        return till

    yield open_one
    for till, thread in running:
        till.shutdown()
        thread.join()
        till.server_close()


def service_of(till: Till) -> HttpService:
    at = f"http://127.0.0.1:{till.server_port}"
    return HttpService(try_=f"{at}/try", confirm=f"{at}/confirm?v=1", cancel=f"{at}/cancel", secret=SECRET)


class ServiceShelf(tills.TillShelf):
    """Items that a service has taken."""

    def __init__(self, till: Till, participant: TccParticipant, store: Store) -> None:
        super().__init__(tills.Till(), participant, store)
        self._service = till

    def put(self, handle: object, item: int) -> None:
        """Reserve an item."""
        assert isinstance(handle, TccWork)
        assert handle(item=item) == {"did": "try"}

    def items(self) -> set[int]:
        """Return the items that are taken."""
        return self._service.items()


@pytest.fixture
def till(opened: Open) -> Till:
    return opened("till")


@pytest.fixture
def participant(till: Till, store: Store) -> TccParticipant:
    return service_of(till).participant("till", store)


@pytest.fixture
def another(till: Till, store: Store) -> TccParticipant:
    return service_of(till).participant("till", store)


@pytest.fixture
def shelf(till: Till, another: TccParticipant, store: Store) -> ServiceShelf:
    return ServiceShelf(till, another, store)


@pytest.fixture
def next_door(opened: Open, store: Store) -> tuple[TccParticipant, ServiceShelf]:
    till = opened("bank")
    participant = service_of(till).participant("bank", store)
    return participant, ServiceShelf(till, participant, store)


@pytest.mark.req("IBM-40", "IBM-48")
class TestHttp(ParticipantContract):
    """The published suite."""

    keeps = False
