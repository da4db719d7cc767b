"""A server of the open catalog or the store is killed at each fact of a three-table commit: it is whole, and once."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.chaos import catalog_town as town
from tests.chaos import child
from tests.chaos.catalog_town import TABLES, Audit, Server, killed_at, recording
from tests.chaos.conftest import DONE
from tests.chaos.invariants import not_sound
from tests.chaos.lake_programs import clerk, recover
from tests.chaos.scenarios import CREDITS
from tests.chaos.tally import Kills
from tests.chaos.test_server_killed import kill_all
from tests.chaos.transfers import Town
from tests.chaos.world import World
from tests.open_catalog.asking import committed
from tests.services.free_port import free_port
from txsaga.broker import Broker
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import AlreadyCommitted
from txsaga.testing.kill import KILL, KillPoint, recorded, sample

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(1800)]
READS, DEFAULT_READS = "TXSAGA_CATALOG_READS", 2_000
OF_EACH_COMMIT = ("Opening:1", "Opened:1", "Ended:1", "Building:1", "Built:1", "Deciding:1", "Decided:1")
LONGEST = 1200.0
SELDOM = 3.0
"""Seconds between two kills, at most: a server that comes back takes half of one."""


@pytest.fixture
def world(doomed_world: World) -> World:
    """Give a world on a server that may be killed."""
    return doomed_world


@pytest.fixture
def standing(world: World) -> Iterator[Server]:
    """Give a catalog that is not killed, with its tables."""
    server = Server(world)
    try:
        town.found(world, server.client)
        world.note(town.PORTS, str(server.port))
        yield server
    finally:
        server.close()


def points_of(world: World, standing: Server) -> list[str]:
    """Return the points of a server that is asked for one commit."""
    path = world.folder / "points"
    server = Server(world, recording(path))
    try:
        before = len(recorded(path)) if path.exists() else 0
        changes = town.counted_on(standing.client, "first")
        assert town.insist([server.client], changes, key="first") == 204
        points = recorded(path)[before:]
    finally:
        server.close()
    return [str(point) for point in points if point.fact not in town.OWN_CLOCK]


@pytest.mark.req("IBM-08", "BEYOND-3")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [0, 1], ids=["repeated at once", "settled by an engine first"])
def test_a_server_that_is_killed_leaves_three_tables_as_the_client_is_told(
    world: World, standing: Server, first: int, seed: int, pytestconfig: pytest.Config
) -> None:
    """Repeat at once and after an engine in turn: with `--full-matrix` each fact has both."""
    points = points_of(world, standing)
    assert set(OF_EACH_COMMIT) <= set(points)
    for number, point in enumerate(points):
        changes = town.counted_on(standing.client, point)
        assert is_killed(Server(world, killed_at(point)), changes, key=point), point
        if (number + first) % 2:
            world.let_leases_run_out()
            child.finish(recover, world)
        town.note(world, point, town.insist([standing.client], changes, key=point))
        assert [town.history(world, table)[-1] for table in TABLES] == [point] * 3
    Audit(world).require()
    kills = Kills(
        scenario="a commit of three tables", points=len(points), killed=len(points), missed=0, wrong=0, seed=seed
    )
    pytestconfig.stash[DONE].append(kills)


def is_killed(server: Server, changes: list[dict[str, object]], **scope: str) -> bool:
    """Ask a server for a commit that kills it; tell whether it did so without an answer."""
    try:
        committed(server.client, *changes, **scope)
        return False
    except httpx.TransportError:
        return server.ended() == -9
    finally:
        server.close()


def test_a_commit_that_joins_is_there_once_though_its_server_is_killed(world: World, standing: Server) -> None:
    for point in ("Filing:1", "Filed:1"):
        with town.opened(world) as broker, clerk(broker).transaction() as tx:
            token, changes = tx.token(), town.counted_on(standing.client, point)
            tx.send(CREDITS, point.encode())
            assert is_killed(Server(world, killed_at(point)), changes, key=point, token=token), point
            assert town.insist([standing.client], changes, key=point, token=token) == 204
            assert point not in town.history(world, "a")
        world.note("joined", point)
        world.note("acknowledged", point)
    child.finish(recover, world)
    Audit(world).require()
    assert town.history(world, "a") == ["Filing:1", "Filed:1"]


def joined_once(broker: Broker, world: World) -> None:
    """Send and count on in one transaction, under the key that is noted last."""
    with suppress(AlreadyCommitted):
        town.send_and_count(broker, world, town.clients_of(world), world.notes("wanted")[-1])


@pytest.mark.req("RMQ-01", "IBM-08")
def test_whoever_dies_tables_that_were_joined_follow_the_message(
    world: World, standing: Server, seed: int, pytestconfig: pytest.Config
) -> None:
    world.note("wanted", "first")
    found = [each for each in child.record(joined_once, world) if each.fact not in town.OWN_CLOCK]
    points = [str(each) for each in (found if pytestconfig.getoption("full_matrix") else sample(found, 4, seed))]
    assert {"Ending:1", "Ended:1", "Deciding:1", "Built:1", "Decided:1"} <= {str(each) for each in found}
    for point in points:
        world.note("wanted", point)
        child.kill(joined_once, world, KillPoint.parse(point))
        child.finish(recover, world)
        child.finish(joined_once, world)
        assert town.history(world, "a")[-1] == point
    child.finish(recover, world)
    Audit(world).require()
    assert town.history(world, "a") == ["first", *points]


@pytest.mark.req("BEYOND-3")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", OF_EACH_COMMIT)
def test_a_store_that_is_killed_leaves_three_tables_as_the_client_is_told(
    world: World, standing: Server, doomed: EmbeddedServer, point: str
) -> None:
    killing = {"TXSAGA_OBSERVERS": "tests.chaos.catalog_town:kill_store", "TXSAGA_HOME": str(doomed.home)}
    server = Server(world, killing | {KILL: point})
    try:
        changes = town.counted_on(standing.client, point)
        with town.pursued(doomed) as restarts:
            assert town.insist([server.client], changes, key=point) == 204
            assert town.insist([standing.client], changes, key=point) == 204
        assert restarts
    finally:
        server.close()
    Audit(world).require()
    assert town.history(world, "a") == [point]


def test_the_audit_finds_what_is_torn_lost_doubled_or_back(world: World, standing: Server) -> None:
    for key in ("k1", "k2"):
        assert town.insist([standing.client], town.counted_on(standing.client, "twice"), key=key) == 204
    world.note("acknowledged", "lost")
    world.note("refused", "twice")
    for line in ("a 0", "b twice", "c 0"):
        world.note("reads by nobody 1", line)
    audit = Audit(world)
    assert (audit.lost, audit.resurrected, audit.doubled) == ({"lost"}, {"twice"}, ["twice"])
    assert len(audit.torn) == 1
    with pytest.raises(AssertionError):
        audit.require()


class CatalogTown(Town):
    """The processes of one run, and the server of the store."""

    def __init__(self, world: World, seed: int, doomed: EmbeddedServer) -> None:
        super().__init__(world, seed, town.PARTS)
        self._doomed = doomed

    def kill_somebody(self, seldom: float = 0.5) -> None:
        """Kill a process, or one time in twelve the store; who killed itself comes back."""
        for name, process in list(self._running.items()):
            if process.exitcode is not None:
                self.kills.append(f"{name} at a fact, or by itself")
                self._start(name)
        if self._random.randrange(12):
            super().kill_somebody(seldom)
            return
        kill_all(self._doomed)
        self._doomed.ensure()
        self.kills.append("store")


@pytest.mark.req("RMQ-07")
def test_whoever_is_killed_readers_see_three_tables_of_one_commit(
    world: World, standing: Server, doomed: EmbeddedServer, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    standing.close()
    (world.folder / town.PORTS).write_text(f"{free_port()}\n{free_port()}\n")
    wanted = int(os.environ.get(READS) or DEFAULT_READS)
    processes, began = CatalogTown(world, seed, doomed), time.monotonic()
    processes.start()
    try:
        while (count := reads(world.folder)) < wanted or len(world.notes("acknowledged")) < 10:
            processes.kill_somebody(SELDOM)
            if time.monotonic() - began > LONGEST:
                break
    finally:
        processes.stop()
    world.let_leases_run_out()
    child.finish(recover, world)
    audit = Audit(world)
    with capsys.disabled():
        killed = ", ".join(f"{name} {often}" for name, often in sorted(Counter(processes.kills).items()))
        print(f"\n{audit}; {time.monotonic() - began:.0f} s, {len(processes.kills)} kills: {killed}")
    audit.require()
    assert count >= wanted
    assert not not_sound(world.home)


def reads(folder: Path) -> int:
    """Count what readers noted so far."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("reads *"))
