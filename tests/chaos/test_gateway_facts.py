"""
A client, a gateway, the engine or the store is killed at each fact of a send, its end and its check.

The message is there once, or never.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

import grpc
import pytest
from sqlalchemy.exc import SQLAlchemyError

import txsaga
from tests.chaos.catalog_town import OWN_CLOCK, killed_at, recording
from tests.chaos.child import opened, warm
from tests.chaos.conftest import DONE
from tests.chaos.invariants import delivered, not_sound
from tests.chaos.scenarios import CREDITS
from tests.chaos.tally import Kills
from tests.chaos.world import World
from tests.gateway.calling import RawClient, message
from tests.gateway.test_checks import answering, asked
from tests.services.free_port import free_port
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Lease
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.cli.__main__ import main
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.role_loop import Loop
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import StoreUnavailable, TxSagaError
from txsaga.gateway.status import Code
from txsaga.testing.kill import KILL, recorded

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(900)]
PATIENCE = 30.0
BY_THE_CLOCK = (*OWN_CLOCK, "Hearing", "Heard")
MAY_BE_MISSED = {"Answering", "Answered"}
"""The decision ends a question; its answer is then not recorded if somebody has seen the decision first."""
OF_A_SEND = [f"{fact}:{time}" for time in (1, 2) for fact in ("Preparing", "Prepared", "Deciding", "Decided")]
OF_A_GATEWAY = [*OF_A_SEND, "Answering:1", "Answered:1"]
TURNS = ("Ticking", "Ticked", "Leading", "Led", "Collecting", "Collected", "Sweeping", "Swept", "Asking", "Asked")
OF_AN_ENGINE = [f"{fact}:1" for fact in (*TURNS, "Yielding", "Yielded")]
SOON = CheckProfile(interval=timedelta(seconds=0.5), min_age=timedelta(0), max_checks=1_000)
warm.set_forkserver_preload(["tests.chaos.test_gateway_facts", "txsaga.gateway.server", "txsaga.cli.gateway.serve"])


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
def world(doomed_world: World) -> World:
    """Give a world on a server that may be killed."""
    return doomed_world


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
        yield broker


@pytest.fixture
def delivering(broker: Broker) -> Iterator[None]:
    """Deliver from this process, which is not killed."""
    delivering = Loop([Dispatcher(broker.kernel)], broker.kernel.jitter)
    delivering.start()
    yield
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
        with suppress(grpc.RpcError, EOFError):
            run(gateway)
        return gateway.ended() == -9
    finally:
        gateway.close()


@pytest.mark.usefixtures("delivering")
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


@pytest.mark.usefixtures("delivering")
def test_a_check_is_killed(
    world: World, broker: Broker, standing: Gateway, seed: int, pytestconfig: pytest.Config
) -> None:
    def run(gateway: Gateway, id: str = "first") -> None:
        with standing.client() as client:
            sent(client, id)
        world.let_leases_run_out()  # who was killed before is not asked
        with gateway.client() as client, client.connected(CREDITS) as told:
            if told.get(timeout=20) is None:
                return
            with answering(broker):
                ended(client, asked(told).transaction_id, "SOURCE_SERVER_CHECK")
                gateway.ended(3)  # the answer is recorded after it

    found = points_of(world, run)
    assert {"Deciding:1", "Decided:1"} <= set(found)
    points = found if pytestconfig.getoption("full_matrix") else random.Random(seed).sample(found, 1)
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


class Engine:
    """The roles as a process of their own, begun again when it was killed."""

    def __init__(self, world: World, env: Mapping[str, str]) -> None:
        self._world, self.kills = world, 0
        self._start(env)

    def _start(self, env: Mapping[str, str]) -> None:
        self._process = warm.Process(target=run_roles, args=(self._world, dict(env)), daemon=True)
        self._process.start()

    def look_after(self) -> None:
        """Begin it again if it was killed."""
        if self._process.exitcode is not None:
            assert self._process.exitcode == -9
            self.kills += 1
            self._start({})

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()


def run_roles(world: World, env: Mapping[str, str]) -> None:
    """Deliver and check until this process is killed; wait for a store that is away."""
    os.environ.update(env)
    Lease.TTL = timedelta(seconds=1)
    while True:
        with suppress(StoreUnavailable), opened(world, env) as broker:
            Loop([Dispatcher(broker.kernel), CheckBack(broker.kernel, SOON)], broker.kernel.jitter).start()
            Event().wait()


def at_last(call: Callable[[], Any]) -> Any:
    """Repeat a call until it is served."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(grpc.RpcError):
            answer = call()
            if Code(answer.status.code) is Code.OK:
                return answer
        time.sleep(0.05)
    raise TimeoutError("it is not served")


def is_whole(world: World, *expected: str) -> bool:
    """Tell whether each message is there once, and nothing is left to do."""
    with suppress(TxSagaError, SQLAlchemyError):
        return delivered(world, CREDITS) == [*expected] and not not_sound(world.home)
    return False


def transfer_and_leave(world: World, gateway: Gateway, env: Mapping[str, str]) -> int:
    """End a message, leave another one to the check, and wait for both; return how often the engine was killed."""
    known: list[str] = []
    with gateway.client() as client, client.connected(CREDITS) as told:
        told.get(timeout=20)
        for id in ("ended", "left"):
            half = message(CREDITS, id.encode(), type="TRANSACTION", id=id.encode().hex())
            known.append(at_last(partial(client.send, half)).entries[0].transaction_id)
            if id == "ended":
                at_last(partial(client.end, known[0], "COMMIT"))
        with closing(Engine(world, env)) as engine:
            end = time.monotonic() + PATIENCE
            while not is_whole(world, "ended", "left"):
                assert time.monotonic() < end, (delivered(world, CREDITS), not_sound(world.home))
                engine.look_after()
                with suppress(queue.Empty, grpc.RpcError):
                    id = asked(told, 0.2).transaction_id
                    client.end(id, "COMMIT" if id in known else "ROLLBACK", "SOURCE_SERVER_CHECK")
            engine.look_after()
            return engine.kills


@pytest.mark.sampled(1)
@pytest.mark.parametrize("point", OF_AN_ENGINE)
def test_an_engine_is_killed(world: World, broker: Broker, standing: Gateway, point: str) -> None:
    assert transfer_and_leave(world, standing, killed_at(point))
    assert is_whole(world, "ended", "left")


@contextmanager
def beginning_again(world: World, store: EmbeddedServer) -> Iterator[None]:
    """Start the store again whenever it was killed; in a process of its own, as this one can't fork beside gRPC."""
    process = warm.Process(target=begin_again, args=(world, store), daemon=True)
    process.start()
    try:
        yield
    finally:
        world.note("over", "")
        process.join(PATIENCE)


def begin_again(world: World, store: EmbeddedServer) -> None:
    """Start the store again until the test is over."""
    over = False
    while not over:
        over = bool(world.notes("over"))
        if not store.status().running:
            store.ensure()
            world.note("restarts", "")
        time.sleep(0.05)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("point", [*OF_A_GATEWAY, *OF_AN_ENGINE])
def test_a_store_is_killed(world: World, broker: Broker, doomed: EmbeddedServer, point: str) -> None:
    killing = {"TXSAGA_OBSERVERS": "tests.chaos.catalog_town:kill_store", "TXSAGA_HOME": str(doomed.home), KILL: point}
    with beginning_again(world, doomed), closing(Gateway(world, killing)) as gateway:
        transfer_and_leave(world, gateway, killing)
    assert is_whole(world, "ended", "left")
    assert world.notes("restarts") or point.partition(":")[0] in MAY_BE_MISSED


def leave(world: World, address: str, event: str) -> None:
    """Send a half message, and be killed after an event."""
    with RawClient(address, "dying@1") as client, client.connected(CREDITS) as told:
        told.get(timeout=20)
        transaction = sent(client, "left")
        if event == "asked":
            asked(told)
        elif event == "ended":
            ended(client, transaction)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("event", ["sent", "asked", "ended"])
def test_a_client_is_killed(world: World, broker: Broker, standing: Gateway, event: str) -> None:
    with closing(Engine(world, {})):
        dying = warm.Process(target=leave, args=(world, standing.address, event))
        dying.start()
        dying.join(PATIENCE)
        assert dying.exitcode == -signal.SIGKILL
        with standing.client() as client, client.connected(CREDITS) as told:
            end = time.monotonic() + PATIENCE
            while not is_whole(world, "left"):
                assert time.monotonic() < end
                with suppress(queue.Empty):
                    ended(client, asked(told, 0.2).transaction_id, "SOURCE_SERVER_CHECK")
