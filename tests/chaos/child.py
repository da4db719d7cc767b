"""Child processes that can be killed at a fact.

They are forked from a warm server process that has imported everything and connected to nothing, so a child
costs some milliseconds; the kill is a real SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from sqlalchemy import create_engine

import txsaga
from tests.chaos.world import World
from txsaga.broker import Broker
from txsaga.core.announcer import Observer
from txsaga.testing.kill import FACTS, KILL, KillPoint, recorded

Stage = Callable[[Broker, World], None]

PATIENCE = 60
warm = multiprocessing.get_context("forkserver")
"""The one server process that children are forked from; also of tests.flows.machine."""
PROGRAMS = ("scenarios", "looping", "coordinated", "members", "flows", "undone_flows", "sagas", "lake_programs")
warm.set_forkserver_preload([*(f"tests.chaos.{each}" for each in PROGRAMS), "tests.flows.machine.acting"])


class StageFailed(AssertionError):
    """A child ended otherwise than it should; what it raised is in the message."""


def finish(stage: Stage, world: World, copies: int = 1) -> None:
    """Run a stage to its end, in so many processes at once."""
    running = [_started(stage, world, {}) for _ in range(copies)]
    for child in running:
        _expect(0, _ended(child, stage), stage, world)


def record(stage: Stage, world: World) -> list[KillPoint]:
    """Run a stage to its end and return the points that it passed."""
    path = world.folder / "points"
    env = {"TXSAGA_OBSERVERS": "txsaga.testing.kill:recorder", FACTS: str(path)}
    _expect(0, _run(stage, world, env), stage, world)
    return recorded(path)


def kill(stage: Stage, world: World, point: KillPoint) -> bool:
    """Run a stage until it is killed at a point; False when it came to its end without.

    Checkers run in threads of their own, so answers that come together may share a step.
    """
    env = {"TXSAGA_OBSERVERS": "txsaga.testing.kill:observer", KILL: str(point)}
    ended = _run(stage, world, env)
    if ended == 0:
        return False
    _expect(-signal.SIGKILL, ended, stage, world)
    world.let_leases_run_out()
    return True


def _run(stage: Stage, world: World, env: Mapping[str, str]) -> int | None:
    return _ended(_started(stage, world, env), stage)


def _started(stage: Stage, world: World, env: Mapping[str, str]) -> BaseProcess:
    child = warm.Process(target=_main, args=(stage, world, dict(env)))
    child.start()
    return child


def _ended(child: BaseProcess, stage: Stage) -> int | None:
    child.join(PATIENCE)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise StageFailed(f"{stage.__name__} hung; it was killed after {PATIENCE} s")
    return child.exitcode


def _expect(code: int, ended: int | None, stage: Stage, world: World) -> None:
    if ended != code:
        why = "\n".join(world.notes("errors"))
        raise StageFailed(f"{stage.__name__} ended with {ended}, not {code}\n{why}")


def _main(stage: Stage, world: World, env: Mapping[str, str]) -> None:
    os.environ.update(env)
    try:
        with opened(world, env) as broker:
            stage(broker, world)
    except BaseException:
        world.note("errors", traceback.format_exc())
        raise


@contextmanager
def opened(world: World, env: Mapping[str, str], *observers: Observer) -> Iterator[Broker]:
    """Open a broker and every database of a world."""
    with ExitStack() as stack:
        engines = {name: create_engine(url) for name, url in world.resources.items()}
        for engine in engines.values():
            stack.callback(engine.dispose)
        options: dict[str, Any] = {"roles": False, "answering": False, "participants": world.services}
        place = world.folder / "warehouse"
        connected = txsaga.connect(
            world.home, resources=engines, observers=observers, warehouse=place, env=env, **options
        )
        yield stack.enter_context(connected)
