"""A bank that keeps its books in tables, in a warehouse of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import txsaga
from tests.lake.books import Books
from txsaga.core.announcer import Observer
from txsaga.wiring.connecting import open_store


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Give the folder of all tables."""
    return tmp_path / "warehouse"


@pytest.fixture
def open_books(home_url: str, warehouse: Path) -> Iterator[Callable[..., Books]]:
    """Give a factory of brokers on the same store and warehouse, each as good as a process of its own."""
    open_store(home_url).close()
    opened: list[Books] = []

    def open(*observers: Observer, place: str | Path = warehouse) -> Books:
        broker = txsaga.connect(
            home_url, warehouse=place, observers=observers, roles=False, answering=False, auto_create=True, env={}
        )
        opened.append(Books(broker))
        return opened[-1]

    yield open
    for each in opened:
        each.broker.close()


@pytest.fixture
def books(open_books: Callable[..., Books]) -> Books:
    """Give the books of one process."""
    return open_books()
