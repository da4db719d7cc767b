"""
`txsaga engine`: the roles of a store as a process of their own.

It stops on SIGTERM or SIGINT: every role finishes its round, then it leaves with 0. A second
signal ends it at once. If it is killed, nothing is lost: another copy, or this one when it is started
again, goes on where it was.
"""

from __future__ import annotations

import logging
import math
import queue
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from txsaga.checkback.profile import PROFILES, CheckProfile
from txsaga.cli.check_options import CHECKS, of_profile
from txsaga.cli.home import Rest, opened
from txsaga.cli.log_format import to_stderr
from txsaga.cli.options import Options, options_of, takes, whole
from txsaga.cli.printing import document, table
from txsaga.consume.dispatcher import may_dispatch
from txsaga.errors import ConfigError, RightsMissing

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.cli.metrics import Metrics
    from txsaga.core.role_loop import Role

logger = logging.getLogger("txsaga")
NO_RIGHT = "this login has no engine right; ask the owner of the namespace for `txsaga db grant engine --to` its role"
STOPPING = (signal.SIGTERM, signal.SIGINT)
Stopped = Callable[[float | None], bool]
"""Waits some seconds, or for ever; true once a stop is requested."""


@takes(CHECKS)
def engine(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Run each role once and exit.")] = False,
    profile: Annotated[
        Literal["classic", "5x"], typer.Option(help="Check interval: 60 s, or 30 s with 5x.")
    ] = "classic",
    handler: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=MODULE:FUNCTION", help="Call this for transactions out of checks."),
    ] = None,
    checker: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=MODULE:FUNCTION", help="Answer checks for a group without producers."),
    ] = None,
    sagas: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Module with code of sagas, in addition to TXSAGA_SAGAS; may be repeated."),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(parser=whole(0, 65_535), metavar="NUMBER", help="Port of the metrics; 0 for a free one."),
    ] = None,
    metrics_address: Annotated[str, typer.Option(help="Address on which metrics are served.")] = "127.0.0.1",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log: one line per record, as text or JSON.")
    ] = "text",
    **checks: object,
) -> None:
    """Run the engine (dispatcher, scheduler, check-back, recovery, partitions) until SIGTERM or SIGINT."""
    options = options_of(context)
    handlers, checkers = functions_of(handler or (), "handler"), functions_of(checker or (), "checker")
    asked = PROFILES[profile].of_group(of_profile(checks))
    to_stderr(debug=options.debug, level=logging.INFO, as_json=log_format == "json")
    watch = None if metrics is None or once else watching()
    with (
        stopping() as stopped,
        opened(options, observers=[] if watch is None else [watch], rest=None if once else until(stopped)) as broker,
        nullcontext() if watch is None else exposed(watch, broker, asked, metrics or 0, metrics_address),
    ):
        if not may_dispatch(broker.kernel):
            raise RightsMissing(NO_RIGHT)
        load_code(sagas or ())
        for group, function in handlers.items():
            broker.when_exhausted(group, function)
        for group, function in checkers.items():
            broker.answer_for(group, function)
        roles = broker.roles(asked)
        if once:
            run_once(roles, options)
        else:
            told = f"store {broker.identity}, profile {profile}: {described(asked)}"
            run(roles if watch is None else watch.watch(roles), told, stopped)


def until(stopped: Stopped) -> Rest:
    """Return a wait that ends the command when a stop is requested."""

    def rest(seconds: float) -> None:
        if stopped(seconds):
            logger.info("engine stopped while it was waiting for its home database")
            raise typer.Exit

    return rest


def load_code(modules: Sequence[str]) -> None:
    """Load the code that sagas name, and log what can't be loaded: sagas that need it wait."""
    from txsaga.flows.actions import CODE

    CODE.load(modules)
    for module, reason in CODE.unloaded.items():
        logger.error("module %r with code of sagas can't be loaded; sagas that need it wait: %s", module, reason)


def watching() -> Metrics:
    """Return a watch on this process; it needs a package that not everybody installs."""
    try:
        from txsaga.cli.metrics import Metrics
    except ImportError as missing:
        raise ConfigError(f"--metrics needs a package: {missing}; pip install 'txsaga[metrics]'") from missing
    return Metrics()


@contextmanager
def exposed(watch: Metrics, broker: Broker, profile: CheckProfile, port: int, address: str) -> Iterator[None]:
    """Serve metrics, and log the address."""
    from txsaga.cli.metrics import Gauges, served

    with served(watch, Gauges(broker.kernel.store, profile.min_age), port, address) as found:
        logger.info("metrics are at http://%s:%d/metrics", address, found)
        yield


def described(profile: CheckProfile) -> str:
    """Describe in one line when and how often transactions are checked, and what happens to the rest."""
    return (
        f"checks every {profile.interval.total_seconds():g} s from {profile.min_age.total_seconds():g} s on, "
        f"at most {profile.max_checks} and for {profile.total_limit.total_seconds() / 3600:g} h, "
        f"answers within {profile.reply_timeout.total_seconds():g} s, then {profile.on_exhausted}"
    )


def functions_of(given: Sequence[str], what: str) -> dict[str, Any]:
    """Load the handlers, or the checkers, of groups."""
    from txsaga.config import load

    functions: dict[str, Any] = {}
    for text in given:
        group, _, name = text.partition("=")
        if not group or name.count(":") != 1 or group in functions:
            told = f"{text!r} is wrong; write GROUP=MODULE:FUNCTION, at most once for each group"
            raise typer.BadParameter(told, param_hint=f"--{what}")
        functions[group] = load(name, what)
    return functions


def run_once(roles: list[Role], options: Options) -> None:
    """Run each role once and print how much it did; what the scheduler commits is dispatched in the same call."""
    from txsaga.messages.scheduler import Scheduler

    done = Counter[str]()
    for role in sorted(roles, key=lambda role: role.name != Scheduler.name):
        done[role.name] += role.run_once()
    if options.json:
        document(done)
    else:
        table(("role", "done"), done.items())


def run(roles: list[Role], told: str, stopped: Stopped) -> None:
    """Run the roles until a stop is requested, then let each finish its round; log start and end."""
    from txsaga.core.role_loop import Loop

    loop = Loop(roles)
    logger.info("engine started: %s", told)
    loop.start()
    try:
        stopped(None)
    finally:
        loop.stop()
    logger.info("engine stopped: %s", told)


@contextmanager
def stopping() -> Iterator[Stopped]:
    """Let the first SIGTERM or SIGINT end a wait; the next one works as usual."""
    requests: queue.SimpleQueue[int] = queue.SimpleQueue()  # an Event hangs if its `set` interrupts its own `wait`
    before = {number: signal.getsignal(number) for number in STOPPING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        restore()
        requests.put(number)

    def stopped(seconds: float | None) -> bool:
        until = math.inf if seconds is None else time.monotonic() + seconds
        while requests.empty() and (left := until - time.monotonic()) > 0:
            # A signal does not end this if it comes just before, or if another thread gets it.
            with suppress(queue.Empty):
                requests.put(requests.get(timeout=min(left, 1.0)))
        return not requests.empty()

    for number in STOPPING:
        signal.signal(number, ask)
    try:
        yield stopped
    finally:
        restore()
