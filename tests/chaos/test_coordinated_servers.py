"""A database, or the store itself, is killed while many databases follow one decision: all agree when it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos import child, coordinated, members
from tests.chaos.agreement import agreed
from tests.chaos.coordinated import BOTH, TAKEN, move, teller
from tests.chaos.houses import MYSQL, POSTGRESQL, SERVICE
from tests.chaos.scenarios import CREDITS
from tests.chaos.telling import assert_truth_was_told, attempt, rows
from tests.chaos.test_server_killed import kill_all
from tests.chaos.till import DEATHS, service
from tests.chaos.world import BANK, MORTGAGE, TILL, World, fresh_world
from tests.services.embedded import embedded_server
from tests.services.mariadb import MariaServer, maria_server
from txsaga.core.announcer import Observer
from txsaga.core.facts import Fact
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import StoreError, TxSagaError
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.recovery import Recovery
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """What takes part beside the bank, and how it is killed and comes back."""

    world: World
    used: tuple[str, ...]
    restart: Callable[[], None]


@pytest.fixture(scope="module")
def doomed_maria() -> Iterator[MariaServer]:
    """Give a server of another kind that may be killed."""
    with maria_server() as server:
        server.execute("create database txsaga")
        yield server


@pytest.fixture
def victim(
    request: pytest.FixtureRequest, home_database: str, bank_database: str, tmp_path: Path, kind: str
) -> Iterator[Victim]:
    """Give something of a kind that may be killed, in a world of its own."""
    if kind == SERVICE:
        with (
            service(tmp_path / TILL) as till,
            fresh_world(home_database, bank_database, tmp_path, till=till.url) as made,
        ):
            yield Victim(world=made, used=TAKEN, restart=till.restart)
    elif kind == MYSQL:
        maria = request.getfixturevalue("doomed_maria")
        with fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: maria.url("txsaga")}) as made:
            yield Victim(world=made, used=BOTH, restart=maria.restart)
    else:
        server = request.getfixturevalue("doomed")
        yield Victim(world=request.getfixturevalue("world"), used=BOTH, restart=lambda: restart(server))


def restart(server: EmbeddedServer) -> None:
    """Kill a server and start it again."""
    kill_all(server)
    server.ensure()


def killing(restart: Callable[[], None], moment: str) -> tuple[Observer, list[str]]:
    """Make an observer that kills something once and starts it again: at a fact that is not the bank's."""
    killed: list[str] = []

    def observe(fact: Fact) -> None:
        if fact.name == moment and fact.about != BANK and not killed:
            killed.append(fact.name)
            restart()

    return observe, killed


PREPARED = ("Voted", "Deciding", "Decided", "Finishing")
"""A session that is killed there has voted, and its owner has not told it."""
TWO_PHASES = ("Naming", "Named", "Voting", *PREPARED, "Finished", "Noting", "Noted")
ONE_PHASE = ("Naming", "Named", "Ending", "Ended", "Working", "Worked", "Deciding", "Decided", "Noting", "Noted")
KINDS = (POSTGRESQL, MYSQL, SERVICE)
MOMENTS = [
    *((kind, moment, False) for kind in KINDS for moment in TWO_PHASES),
    *((kind, moment, True) for kind in (POSTGRESQL, MYSQL) for moment in ONE_PHASE),
]


def named(case: tuple[str, str, bool]) -> str:
    """Name a case by what is killed and when."""
    kind, moment, alone = case
    return f"{kind}{' alone' if alone else ''} at {moment}"


@pytest.mark.req("IBM-67")
@pytest.mark.rule("R12")
@pytest.mark.sampled(5)
@pytest.mark.parametrize(("kind", "moment", "alone"), MOMENTS, ids=map(named, MOMENTS))
def test_what_takes_part_is_killed_and_comes_back_and_agrees(
    victim: Victim, kind: str, moment: str, alone: bool
) -> None:
    world, used = victim.world, victim.used[1:] if alone else victim.used
    observe, killed = killing(victim.restart, moment)
    key = "1" if alone else None
    with child.opened(world, {}, observe) as broker:
        teller(broker)
        told = attempt(broker, world, lambda tx: move(tx, "1", used), victim.used, key)
    assert killed == [moment]
    if moment in PREPARED and not alone and kind == POSTGRESQL:
        assert told is None  # it was prepared: its session is gone, and another one finishes it
    assert_truth_was_told(world, told, used)


@pytest.mark.req("IBM-67")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("death", DEATHS)
def test_a_service_that_dies_in_the_middle_of_a_call_agrees_when_it_is_back(
    home_database: str, bank_database: str, tmp_path: Path, death: str
) -> None:
    with (
        service(tmp_path / TILL, death) as till,
        fresh_world(home_database, bank_database, tmp_path, till=till.url) as world,
    ):
        with child.opened(world, {}) as broker:
            told = attempt(broker, world, rolled_back if "cancel" in death else taken, TAKEN)
        assert till.died
        till.restart()
        assert_truth_was_told(world, told, TAKEN)


def taken(tx: Coordinated) -> None:
    """Work in the bank, and take from the till."""
    move(tx, "1", TAKEN)


def rolled_back(tx: Coordinated) -> None:
    """Do the same, and let the bank say no."""
    taken(tx)
    with tx.on(BANK) as connection, suppress(SQLAlchemyError):
        connection.exec_driver_sql("SELECT 1 / 0")


POINTS = [(kind, f"{fact}:1") for kind in KINDS for fact in TWO_PHASES]


@pytest.mark.req("IBM-08", "IBM-09")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "point"), POINTS, ids=[" ".join(each) for each in POINTS])
def test_the_coordinator_and_what_takes_part_are_killed_together(victim: Victim, kind: str, point: str) -> None:
    world = victim.world
    program = coordinated.take if kind == SERVICE else coordinated.pay
    assert child.kill(program, world, KillPoint.parse(point))
    victim.restart()
    child.finish(coordinated.recover, world, copies=2)
    agreed(*victim.used)(world)


@pytest.mark.req("WM-11", "WM-31")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("moment", TWO_PHASES)
def test_a_broker_of_three_is_killed_and_comes_back_and_agrees(
    doomed: EmbeddedServer, home_database: str, bank_database: str, tmp_path: Path, moment: str
) -> None:
    brokers = {**dict.fromkeys(members.BROKERS, home_database), members.BROKERS[-1]: doomed.url(MORTGAGE)}
    with fresh_world(home_database, bank_database, tmp_path, brokers=brokers) as world:
        observe, killed = killing(lambda: restart(doomed), moment)
        with (
            child.opened(world, {}, observe) as broker,
            members.cluster_of(broker, world, members.GUARANTEED) as (cluster, _),
            suppress(TxSagaError),
        ):
            with cluster.producer("tellers").transaction() as tx:
                tx.send(CREDITS, f"1 {tx.txid}".encode(), key="1")
            world.note("acknowledged", f"1 {tx.txid}")
        assert killed == [moment]
        world.let_leases_run_out()
        child.finish(members.recover, world)
        members.agreed(lambda brokers: brokers >= 2)(world)


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


RECOVERY = ("Led", "Collected", "Sweeping", "Swept", "Deciding", "Decided", "Finishing", "Finished", "Noting", "Noted")


@pytest.mark.rule("R14")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", RECOVERY)
def test_a_store_that_is_restarted_in_the_middle_of_a_recovery(
    doomed: EmbeddedServer, bank_database: str, home_database: str, tmp_path: Path, server: EmbeddedServer, moment: str
) -> None:
    server.database(MORTGAGE)
    with fresh_world(doomed.url("home"), bank_database, tmp_path, {MORTGAGE: server.url(MORTGAGE)}) as world:
        for point in ("Voted:2", "Decided:1"):
            child.kill(coordinated.pay, world, KillPoint.parse(point))
        observe, killed = killing(lambda: restart(doomed), moment)
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
