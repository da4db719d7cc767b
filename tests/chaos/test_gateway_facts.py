"""A gateway is killed at each fact of a send, its end and its check: the message is there once, or never."""

from __future__ import annotations

import os
import queue
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

import grpc
import pytest

import txsaga
from tests.chaos.catalog_town import OWN_CLOCK, killed_at, recording
from tests.chaos.child import warm
from tests.chaos.conftest import DONE
from tests.chaos.invariants import delivered, not_sound
from tests.chaos.scenarios import CREDITS
from tests.chaos.tally import Kills
from tests.chaos.world import World
from tests.gateway.calling import RawClient, message
from tests.gateway.test_checks import answering, asked
from tests.services.free_port import free_port
from txsaga.broker import Broker
from txsaga.cli.__main__ import main
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.role_loop import Loop
from txsaga.gateway.status import Code
from txsaga.testing.kill import recorded

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(900)]
PATIENCE = 30.0
BY_THE_CLOCK = (*OWN_CLOCK, "Hearing", "Heard")
MAY_BE_MISSED = {"Answering", "Answered"}
"""The decision ends a question; its answer is then not recorded if somebody has seen the decision first."""
warm.set_forkserver_preload(["tests.chaos.test_gateway_facts", "txsaga.gateway.server", "txsaga.cli.gateway"])


class Gateway:
    """`txsaga gateway` as a process of its own."""

    def __init__(self, world: World, env: Mapping[str, str] = MappingProxyType({})) -> None:
        self.address, port = (f"127.0.0.1:{(port := free_port())}", port)
        self._process = warm.Process(target=serve, args=(world, port, dict(env)), daemon=True)
        self._process.start()
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(PATIENCE)

    def client(self, id: str = "till@1") -> RawClient:
        """Return a client of it."""
        return RawClient(self.address, id)

    def ended(self, wait: float = 10) -> int | None:
        """Wait for its end; return its code."""
        self._process.join(wait)
        return self._process.exitcode

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()


def serve(world: World, port: int, env: Mapping[str, str]) -> None:
    """Run the program."""
    os.environ.update(env, TXSAGA_URL=world.home)
    sys.stdout = Path(os.devnull).open("w")  # as long as the process
    sys.exit(main(["gateway", "--port", str(port)]))


@pytest.fixture
def standing(world: World, broker: Broker) -> Iterator[Gateway]:
    """Give a gateway that is not killed."""
    gateway = Gateway(world)
    yield gateway
    gateway.close()


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    """Give the store, with a topic."""
    with closing(txsaga.connect(world.home, roles=False, answering=False, env={})) as broker:
        broker.create_topic(CREDITS, "transaction", queues=1)
        delivering = Loop([Dispatcher(broker.kernel)], broker.kernel.jitter)
        delivering.start()
        yield broker
        delivering.stop()


def sent(client: RawClient, id: str) -> str:
    """Send a half message; return its transaction."""
    (entry,) = client.send(message(CREDITS, id.encode(), type="TRANSACTION", id=id.encode().hex())).entries
    assert Code(entry.status.code) is Code.OK
    return str(entry.transaction_id)


def ended(client: RawClient, transaction: str, source: str = "SOURCE_CLIENT") -> None:
    """Commit a transaction."""
    assert Code(client.end(transaction, "COMMIT", source).status.code) is Code.OK


def transfer(client: RawClient, id: str, known: list[str]) -> None:
    """Send a half message and commit it."""
    known.append(sent(client, id))
    ended(client, known[0])


def points_of(world: World, run: Callable[[Gateway], None]) -> list[str]:
    """Return what a gateway announces, but for what comes by the clock."""
    path = world.folder / "points"
    gateway = Gateway(world, recording(path))
    try:
        run(gateway)
        return [str(each) for each in recorded(path) if each.fact not in BY_THE_CLOCK]
    finally:
        gateway.close()
        path.unlink()


def is_killed(gateway: Gateway, run: Callable[[Gateway], None]) -> bool:
    """Tell whether a gateway is killed by what is asked of it."""
    try:
        with suppress(grpc.RpcError, queue.Empty):
            run(gateway)
        return gateway.ended() == -9
    finally:
        gateway.close()


def test_a_send_or_its_end_is_killed(
    world: World, broker: Broker, standing: Gateway, seed: int, pytestconfig: pytest.Config
) -> None:
    known: list[str] = []

    def run(gateway: Gateway, id: str = "first") -> None:
        with gateway.client() as client:
            transfer(client, id, known)

    points, expected = points_of(world, run), ["first"]
    assert {"Preparing:1", "Prepared:1", "Deciding:1", "Decided:1"} <= set(points)
    for point in points:
        known.clear()
        assert is_killed(Gateway(world, killed_at(point)), partial(run, id=point)), point
        if known:  # its client repeats the end, at another gateway
            with standing.client() as client:
                ended(client, known[0])
            expected.append(point)
    with standing.client() as client, client.connected(CREDITS) as told, answering(broker):
        told.get(timeout=20)
        for _ in range(points.count("Prepared:1")):  # stored, and its client does not know
            client.end(asked(told).transaction_id, "ROLLBACK", "SOURCE_SERVER_CHECK")
    assert delivered(world, CREDITS) == sorted(expected)
    assert not not_sound(world.home)
    kills = Kills(scenario="a gateway, a send", points=len(points), killed=len(points), missed=0, wrong=0, seed=seed)
    pytestconfig.stash[DONE].append(kills)


def test_a_check_is_killed(
    world: World, broker: Broker, standing: Gateway, seed: int, pytestconfig: pytest.Config
) -> None:
    def run(gateway: Gateway, id: str = "first") -> None:
        with standing.client() as client:
            sent(client, id)
        with gateway.client() as client, client.connected(CREDITS) as told, answering(broker):
            told.get(timeout=5)
            ended(client, asked(told, 5).transaction_id, "SOURCE_SERVER_CHECK")
            gateway.ended(5)  # the answer is recorded after it

    found = points_of(world, run)
    assert {"Deciding:1", "Decided:1", "Answering:1", "Answered:1"} <= set(found)
    points = found if pytestconfig.getoption("full_matrix") else random.Random(seed).sample(found, 2)
    missed: list[str] = []
    for point in points:
        if not is_killed(Gateway(world, killed_at(point)), partial(run, id=point)):
            missed.append(point)
        world.let_leases_run_out()
        with standing.client() as client, client.connected(CREDITS) as told, answering(broker):
            told.get(timeout=20)
            while point not in delivered(world, CREDITS):
                with suppress(queue.Empty):
                    ended(client, asked(told, 1).transaction_id, "SOURCE_SERVER_CHECK")
    assert delivered(world, CREDITS) == sorted([*points, "first"])
    assert not not_sound(world.home)
    assert {point.partition(":")[0] for point in missed} <= MAY_BE_MISSED
    killed = len(points) - len(missed)
    figures = {"points": len(points), "killed": killed, "missed": len(missed), "wrong": 0, "seed": seed}
    pytestconfig.stash[DONE].append(Kills(scenario="a gateway, a check", **figures))
