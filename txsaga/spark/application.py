"""
A Spark application as its step records it, and a driver that outlives the task that started it.

A retried task checks here whether a driver on this machine is still alive, and kills it if an operator wants that. The
state of a driver elsewhere is only in the store. If this is wrong, a lease of half a minute decides.

A driver ends once its attempt no longer counts: its flow may be decided, or another driver may have replaced it while
it was stopped. Nothing it wrote is published (R4). Without that check it works to the end in vain, and is refused.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, Self

from txsaga.errors import ConfigError, DecidedOtherwise, TxSagaError
from txsaga.flows.flow import Flow
from txsaga.flows.step import StepState

if TYPE_CHECKING:
    from txsaga.flows.step_attempts import Attempted


BOOT = Path("/proc/sys/kernel/random/boot_id")
BORN = 18
"""The index of the start time in /proc/PID/stat, counted after the state."""

NUMBERS = ("pid", "group")


class SparkDriver(NamedTuple):
    """The process of a driver, and its process group."""

    id: str  # of the application
    machine: str  # with its boot id and PID namespace
    pid: int
    born: str
    group: int
    lines: str  # the driver's log file

    @classmethod
    def here(cls, id: str, lines: str) -> Self:
        """Describe this process."""
        return cls(id, machine(), os.getpid(), born(os.getpid()) or "", os.getpgrp(), lines)

    @classmethod
    def of(cls, about: Mapping[str, object]) -> Self | None:
        """Read what a step recorded; return None if that is no driver."""
        if any(not isinstance(about.get(name), int if name in NUMBERS else str) for name in cls._fields):
            return None
        return cls(*(about[name] for name in cls._fields))  # type: ignore[arg-type]

    @property
    def is_near(self) -> bool:
        """Return whether it belongs to this machine."""
        return self.machine == machine()

    @property
    def is_gone(self) -> bool:
        """Return whether it is known to have ended; that is never known of another machine."""
        return self.is_near and bool(self.born) and born(self.pid) != self.born

    def end(self) -> None:
        """Kill it and all that it started, if it is on this machine."""
        if self.is_near and not self.is_gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)


def driver_at_work(found: Attempted | None) -> SparkDriver | None:
    """Return the driver that works on a step, as far as is known."""
    if found is None or not found.alive or found.application is None:
        return None
    driver = SparkDriver.of(found.application.about)
    return None if driver is None or driver.is_gone else driver


def machine() -> str:
    """Identify this machine as processes see it: its boot and this container's PID namespace."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{BOOT.read_text('ascii').strip()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def born(pid: int) -> str | None:
    """Return when a process was started; None if it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[BORN]


EVERY = 5.0
"""Seconds between two checks."""


@contextmanager
def checking(look: Callable[[Event], object], every: float = EVERY) -> Iterator[None]:
    """Check periodically in a thread while the block runs; `look` gets the event of the block's end."""
    over = Event()

    def watch() -> None:
        while not over.wait(every):
            look(over)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class StepTaken(Exception):
    """Another driver is working on the step: a task that waits for this one waits for that one."""


def detached(
    flow: Flow, program: Callable[[], object], said: Namespace, application: str, tell: Callable[[str], None]
) -> object:
    """Do a step, recorded so that another task finds it."""
    driver = SparkDriver.here(application, str(said.detached))

    def look(over: Event) -> None:
        why = superseded(flow, said.step, driver)
        if why is not None and not over.is_set():
            tell(f"{why}: this driver ends, and its writes are not published")
            os.killpg(os.getpgrp(), signal.SIGKILL)

    other = driver_at_work(flow.attempt(said.step))
    if other is not None:
        raise StepTaken(f"application {other.id} is at work in step {said.step!r} already; this one does nothing")
    with flow.step(said.step, application=driver._asdict()), checking(look):
        result = json.loads(json.dumps(program(), default=str))
        if said.max_result is not None:
            _require_small(result, said.max_result)
            flow.hand_on(result)
        return result


def _require_small(result: object, most: int) -> None:
    size = len(json.dumps(result))
    if size > most:
        raise ConfigError(
            f"the program returns {size:,} bytes, and at most {most:,} are handed on; keep them in a table or a file "
            "and return its name, allow more by max_result=, or set do_xcom_push=False"
        )


def superseded(flow: Flow, step: str, driver: SparkDriver) -> str | None:
    """Return why a driver's attempt no longer counts; None if it does, or if the store does not answer."""
    try:
        found = flow.attempt(step)
    except DecidedOtherwise as decided:
        return str(decided)
    except TxSagaError:
        return None
    if found is None:
        return None
    about = {} if found.application is None else found.application.about
    if SparkDriver.of(about) == driver and found.state is StepState.STARTED:
        return None
    return f"attempt {found.number} of step {step!r} has taken the place of application {driver.id}"
