"""
`txsaga engine`: the roles of a store as a process of their own.

It stops when it is told to (SIGTERM, SIGINT): every role finishes its round, then it leaves with 0. A second
signal ends it at once. If it is killed, nothing is lost: another copy, or this one when it is started
again, goes on where it was.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import may_dispatch, opened
from txsaga.cli.journal import LogFormat, to_stderr
from txsaga.cli.options import LONGEST, Options, options_of
from txsaga.cli.printing import document, table
from txsaga.errors import ConfigError, RightsMissing

if TYPE_CHECKING:
    from txsaga.cli.metrics import Metrics
    from txsaga.engine.broker import Broker
    from txsaga.engine.roles import Role
    from txsaga.model.checks import CheckProfile

logger = logging.getLogger("txsaga")
NO_RIGHT = "this login has no engine right; ask the owner of the namespace for `txsaga db grant engine --to` its role"
STOPPING = (signal.SIGTERM, signal.SIGINT)


class Profile(StrEnum):
    """Whose defaults check-back has."""

    CLASSIC = "classic"
    NEWER = "5x"


def engine(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Run each role once and leave.")] = False,
    profile: Annotated[Profile, typer.Option(help="Defaults of check-back: 60 s or (5x) 30 s.")] = Profile.CLASSIC,
    check_interval: Annotated[
        float | None, typer.Option(min=0.1, max=LONGEST, help="Seconds between two checks.")
    ] = None,
    min_age: Annotated[float | None, typer.Option(min=0, max=LONGEST, help="Seconds before the first check.")] = None,
    max_checks: Annotated[int | None, typer.Option(min=1, help="Checks before a transaction is parked.")] = None,
    metrics: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port for Prometheus; 0 for a free one.")
    ] = None,
    metrics_address: Annotated[str, typer.Option(help="Address of that port.")] = "127.0.0.1",
    log_format: Annotated[LogFormat, typer.Option(help="One line per record: for people, or JSON.")] = LogFormat.TEXT,
) -> None:
    """Run dispatcher, scheduler, check-back and partitions until told to stop."""
    options = options_of(context)
    asked = profile_of(profile, check_interval, min_age, max_checks)
    to_stderr(debug=options.debug, level=logging.INFO, form=log_format)
    watch = None if metrics is None or once else watching()
    with (
        stopping() as stop,
        opened(options, observers=[] if watch is None else [watch]) as broker,
        nullcontext() if watch is None else exposed(watch, broker, metrics or 0, metrics_address),
    ):
        if not may_dispatch(broker):
            raise RightsMissing(NO_RIGHT)
        roles = broker.roles(asked)
        if once:
            run_once(roles, options)
        else:
            run(roles if watch is None else watch.watch(roles), asked, str(broker.identity), stop)


def watching() -> Metrics:
    """Return a watch on this process; it needs a package that not everybody installs."""
    try:
        from txsaga.cli.metrics import Metrics
    except ImportError as missing:
        raise ConfigError(f"--metrics needs a package: {missing}; pip install 'txsaga[metrics]'") from missing
    return Metrics()


@contextmanager
def exposed(watch: Metrics, broker: Broker, port: int, address: str) -> Iterator[None]:
    """Serve metrics, and say where."""
    from txsaga.cli.metrics import served

    with served(watch, broker.kernel.store, port, address) as found:
        logger.info("metrics are at http://%s:%d/metrics", address, found)
        yield


def profile_of(profile: Profile, interval: float | None, min_age: float | None, max_checks: int | None) -> CheckProfile:
    """Return the profile with what was said beside it."""
    from txsaga.model.checks import PROFILES, CheckProfile

    known = PROFILES[profile]
    return CheckProfile(
        interval=known.interval if interval is None else timedelta(seconds=interval),
        min_age=known.min_age if min_age is None else timedelta(seconds=min_age),
        max_checks=known.max_checks if max_checks is None else max_checks,
    )


def run_once(roles: list[Role], options: Options) -> None:
    """Run each role once and say how much it did; what the scheduler commits is dispatched in the same go."""
    from txsaga.engine.scheduler import Scheduler

    done = {role.name: role.run_once() for role in sorted(roles, key=lambda role: role.name != Scheduler.name)}
    if options.json:
        document(done)
    else:
        table(("role", "done"), done.items())


def run(roles: list[Role], profile: CheckProfile, store: str, stop: threading.Event) -> None:
    """Run the roles until the stop is asked for, then let each finish its round."""
    from txsaga.engine.loop import Loop

    loop = Loop(roles)
    loop.start()
    logger.info(
        "engine started: store %s, checks every %g s from %g s on, at most %d",
        store,
        profile.interval.total_seconds(),
        profile.min_age.total_seconds(),
        profile.max_checks,
    )
    try:
        stop.wait()
    finally:
        loop.stop()
    logger.info("engine stopped: store %s", store)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Turn the first SIGTERM or SIGINT into an event; the next one works as usual."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in STOPPING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        restore()
        stop.set()

    for number in STOPPING:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        restore()
