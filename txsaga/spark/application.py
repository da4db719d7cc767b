"""
A Spark application as its step records it: what Spark calls it, and the driver's process, told apart from any other.

A task that was tried again asks here whether a driver of this machine still lives, and ends it where a person wants
that. Of a driver elsewhere only the store tells. If this errs, a lease of half a minute decides.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from txsaga.flows.step_attempts import Attempted

BOOT = Path("/proc/sys/kernel/random/boot_id")
BORN = 18
"""Where /proc/PID/stat says when a process was started, counted behind its state."""

NUMBERS = ("pid", "group")


class SparkDriver(NamedTuple):
    """The process of a driver, and of all that it started."""

    id: str  # of the application
    machine: str  # with its boot, and the process numbers that are seen from there
    pid: int
    born: str
    group: int
    lines: str  # the file of what it says

    @classmethod
    def here(cls, id: str, lines: str) -> Self:
        """Describe this process."""
        return cls(id, machine(), os.getpid(), born(os.getpid()) or "", os.getpgrp(), lines)

    @classmethod
    def of(cls, about: Mapping[str, object]) -> Self | None:
        """Read what a step recorded; None where that is no driver."""
        if any(not isinstance(about.get(name), int if name in NUMBERS else str) for name in cls._fields):
            return None
        return cls(*(about[name] for name in cls._fields))  # type: ignore[arg-type]

    @property
    def is_near(self) -> bool:
        """Tell whether it runs on this machine, if it does."""
        return self.machine == machine()

    @property
    def is_gone(self) -> bool:
        """Tell whether it is known to be over; of another machine that is not known."""
        return self.is_near and bool(self.born) and born(self.pid) != self.born

    def end(self) -> None:
        """Kill it with all that it started, where that is this machine."""
        if self.is_near and not self.is_gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)


def driver_at_work(found: Attempted | None) -> SparkDriver | None:
    """Return the driver that is at work in a step, as far as is known."""
    if found is None or not found.alive or found.application is None:
        return None
    driver = SparkDriver.of(found.application.about)
    return None if driver is None or driver.is_gone else driver


def machine() -> str:
    """Name this machine as processes see it: since its boot, in this container."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{BOOT.read_text('ascii').strip()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def born(pid: int) -> str | None:
    """Tell when a process was started; None of one that is over."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[BORN]
