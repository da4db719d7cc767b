"""
A Spark application as its step records it: Spark's id, and an unambiguous identity of the driver's process.

A retried task checks here whether a driver on this machine is still alive, and kills it if an operator wants that. The
state of a driver elsewhere is only in the store. If this is wrong, a lease of half a minute decides.
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
