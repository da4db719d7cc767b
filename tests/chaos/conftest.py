"""What tests of kills share: worlds of their own."""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.chaos.world import MORTGAGE, World, fresh_world

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

Worlds = Callable[[], AbstractContextManager[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """How often a program could be killed, was killed, and did not agree afterwards."""

    scenario: str
    points: int
    killed: int
    missed: int
    wrong: int
    seed: int


SEED = "TXSAGA_KILL_SEED"
FIGURES = ("points", "killed", "missed", "wrong")
DONE = pytest.StashKey[list[Kills]]()
DRAWN = pytest.StashKey[int]()
SAMPLED = "sampled"
T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[DONE] = []
    config.stash[DRAWN] = int(os.environ.get(SEED) or random.randrange(10_000))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave of the cases of a sampled test as many as it says, the same ones for the same seed."""
    if config.getoption("full_matrix"):
        return
    cases, shares = defaultdict[str, list[pytest.Item]](list), dict[str, int]()
    for item in items:
        mark, test = item.get_closest_marker(SAMPLED), item.nodeid.partition("[")[0]
        if mark is not None:
            cases[test].append(item)
            (shares[test],) = mark.args
    dropped = {item for test, each in cases.items() for item in not_drawn(each, shares[test], config.stash[DRAWN])}
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def not_drawn(cases: Sequence[T], share: int, seed: int) -> list[T]:
    """Draw a share of the cases of a test; return the others."""
    return random.Random(seed).sample(cases, max(0, len(cases) - share))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    done = terminalreporter.config.stash.get(DONE, [])
    if not done:
        return
    terminalreporter.section(f"kills at facts, TXSAGA_KILL_SEED={done[0].seed}")
    terminalreporter.write_line(f"{'program':60} {'points':>6} {'killed':>6} {'missed':>6} {'wrong':>6}")
    for kills in done:
        terminalreporter.write_line(
            f"{kills.scenario:60} {kills.points:6} {kills.killed:6} {kills.missed:6} {kills.wrong:6}"
        )
    points, killed, missed, wrong = (sum(getattr(k, name) for k in done) for name in FIGURES)
    terminalreporter.write_line(f"{'together':60} {points:6} {killed:6} {missed:6} {wrong:6}")


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Give the seed of this session's sample; set TXSAGA_KILL_SEED to see the same again."""
    return pytestconfig.stash[DRAWN]


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


@pytest.fixture
def houses(server: "DatabaseServer", home_database: str, bank_database: str, tmp_path: Path) -> Worlds:
    """Give a maker of worlds whose books lie in two databases."""
    server.database(MORTGAGE)
    return lambda: fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)})
