"""What tests of kills share: worlds of their own."""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.chaos.tally import KILL_SEED, Kills
from tests.chaos.world import MORTGAGE, World, fresh_world
from tests.services.embedded import embedded_server

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer
    from txsaga.embedded.server import EmbeddedServer

Worlds = Callable[[], AbstractContextManager[World]]


DONE = pytest.StashKey[list[Kills]]()
SAMPLED = "sampled"
T = TypeVar("T")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Call kills slow; leave of the cases of a sampled test as many as it says, the same ones for the same seed."""
    for item in items:
        if item.get_closest_marker("kill"):
            item.add_marker(pytest.mark.slow)
    if config.getoption("full_matrix"):
        return
    cases, shares = defaultdict[str, list[pytest.Item]](list), dict[str, int]()
    for item in items:
        mark, test = item.get_closest_marker(SAMPLED), item.nodeid.partition("[")[0]
        if mark is not None:
            cases[test].append(item)
            (shares[test],) = mark.args
    dropped = {item for test, each in cases.items() for item in not_drawn(each, shares[test], drawn())}
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def drawn() -> int:
    """Return the seed of this session, the same one in each of its processes."""
    return int(os.environ[KILL_SEED])


def not_drawn(cases: Sequence[T], share: int, seed: int) -> list[T]:
    """Draw a share of the cases of a test; return the others."""
    return random.Random(seed).sample(cases, max(0, len(cases) - share))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Hand the kills of a test on with its report, whether it passed or failed."""
    done = item.config.stash[DONE] = []
    try:
        return (yield)
    finally:
        item.user_properties += [kills.handed_on() for kills in done]


@pytest.fixture(scope="session")
def seed() -> int:
    """Give the seed of this session's sample; set TXSAGA_KILL_SEED to see the same again."""
    return drawn()


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


@pytest.fixture(scope="module")
def doomed() -> "Iterator[EmbeddedServer]":
    """Give a server that may be killed."""
    with embedded_server() as server:
        for name in ("home", "bank"):
            server.database(name)
        yield server


@pytest.fixture
def doomed_world(doomed: "EmbeddedServer", tmp_path: Path) -> Iterator[World]:
    """Give a world on that server."""
    with fresh_world(doomed.url("home"), doomed.url("bank"), tmp_path) as made:
        yield made


@pytest.fixture
def houses(server: "DatabaseServer", home_database: str, bank_database: str, tmp_path: Path) -> Worlds:
    """Give a maker of worlds whose books lie in two databases."""
    server.database(MORTGAGE)
    return lambda: fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)})
