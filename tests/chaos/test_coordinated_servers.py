"""A database, or the store itself, is killed while many databases follow one decision: all agree when it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import child, coordinated
from tests.chaos.agreement import agreed
from tests.chaos.coordinated import BOTH, move, teller
from tests.chaos.telling import Step, assert_truth_was_told, attempt, rows
from tests.chaos.test_server_killed import kill_all
from tests.chaos.world import BANK, MORTGAGE, World, fresh_world
from tests.services.embedded import embedded_server
from txsaga.adapters.embedded import EmbeddedServer
from txsaga.engine.coordinator.block import Coordinated
from txsaga.engine.coordinator.recovery import Recovery
from txsaga.errors import StoreError, TxSagaError, Unfinished
from txsaga.model.facts import Fact
from txsaga.ports.observer import Observer
from txsaga.testing.kill import KillPoint

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

PATIENCE = 60.0


@pytest.fixture(scope="module")
def doomed() -> Iterator[EmbeddedServer]:
    """Give a server that may be killed."""
    with embedded_server() as server:
        for name in ("home", MORTGAGE):
            server.database(name)
        yield server


@pytest.fixture
def world(doomed: EmbeddedServer, home_database: str, bank_database: str, tmp_path: Path) -> Iterator[World]:
    """Give a world whose second database may be killed."""
    with fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: doomed.url(MORTGAGE)}) as made:
        yield made


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    """Let roles complain to nobody that a server is away."""
    caplog.set_level(logging.CRITICAL, "txsaga")


def killing(server: EmbeddedServer, moment: str) -> tuple[Observer, list[str]]:
    """Make an observer that kills a server once and starts it again: at a fact that is not the other's."""
    killed: list[str] = []

    def observe(fact: Fact) -> None:
        if fact.name == moment and fact.about != BANK and not killed:
            killed.append(fact.name)
            kill_all(server)
            server.ensure()

    return observe, killed


def both(tx: Coordinated) -> None:
    """Work in both databases."""
    move(tx, "1")


def alone(tx: Coordinated) -> None:
    """Work in the one that may be killed."""
    move(tx, "1", [MORTGAGE])


TWO_PHASES = ("Voting", "Voted", "Deciding", "Decided", "Finishing", "Finished")
ONE_PHASE = ("Ending", "Ended", "Working", "Worked")
MOMENTS = [*((moment, both, BOTH) for moment in TWO_PHASES), *((moment, alone, (MORTGAGE,)) for moment in ONE_PHASE)]


@pytest.mark.req("IBM-67")
@pytest.mark.rule("R12")
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("moment", "work", "used"), MOMENTS, ids=[moment for moment, *_ in MOMENTS])
def test_a_database_that_is_killed_and_comes_back_agrees(
    doomed: EmbeddedServer, world: World, moment: str, work: Step, used: tuple[str, ...]
) -> None:
    observe, killed = killing(doomed, moment)
    with child.opened(world, {}, observe) as broker:
        teller(broker)
        told = attempt(broker, world, work)
    assert killed == [moment]
    if moment in ("Voted", "Deciding", "Decided", "Finishing"):
        assert isinstance(told, Unfinished)  # it was prepared, and its session is gone
    assert_truth_was_told(world, told, used)


@pytest.mark.req("IBM-08", "IBM-09")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("point", ["Voted:2", "Finishing:2"])
def test_the_coordinator_and_a_database_are_killed_together(doomed: EmbeddedServer, world: World, point: str) -> None:
    child.kill(coordinated.pay, world, KillPoint.parse(point))
    kill_all(doomed)
    doomed.ensure()
    child.finish(coordinated.recover, world)
    agreed(*BOTH)(world)


def test_a_database_that_stays_away_holds_up_nobody_else(doomed: EmbeddedServer, world: World) -> None:
    child.kill(coordinated.pay, world, KillPoint.parse("Decided:1"))
    kill_all(doomed)
    with child.opened(world, {}) as broker:
        Recovery(broker.kernel).run_once()
        assert rows(world, BANK) == 1
        with pytest.raises(TxSagaError), broker.producer("others").coordinated(*BOTH):
            pytest.fail("entered")  # pragma: no cover
        doomed.ensure()
    child.finish(coordinated.recover, world)
    agreed(*BOTH)(world)


@pytest.mark.rule("R14")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["Decided", "Finishing", "Noted"])
def test_a_store_that_is_restarted_in_the_middle_of_a_recovery(
    doomed: EmbeddedServer, bank_database: str, home_database: str, tmp_path: Path, server: EmbeddedServer, moment: str
) -> None:
    server.database(MORTGAGE)
    with fresh_world(doomed.url("home"), bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)}) as world:
        for point in ("Voted:2", "Decided:1"):
            child.kill(coordinated.pay, world, KillPoint.parse(point))
        observe, killed = killing(doomed, moment)
        with child.opened(world, {}, observe) as broker:
            recover_whatever_happens(lambda: coordinated.recover(broker, world))
        assert killed == [moment]
        child.finish(coordinated.recover, world)
        agreed(*BOTH)(world)
        assert rows(world, BANK) == 1


def recover_whatever_happens(recover: Callable[[], None]) -> None:
    """Recover as a loop of roles does, which goes on after an error."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return recover()
        except StoreError:
            time.sleep(0.1)  # it is away
    raise AssertionError(f"not recovered within {PATIENCE:g} s")
