"""
The kill harness: observers of facts that kill their own process, or record where it could be killed.

    TXSAGA_OBSERVERS=txsaga.testing.kill:recorder TXSAGA_FACTS=points.txt   every fact, with its count
    TXSAGA_OBSERVERS=txsaga.testing.kill:observer TXSAGA_KILL=Decided:1     SIGKILL at the first Decided

Run a program once with the recorder, then once for each point with the observer; restart it and check that everything
is still consistent. Both count per process, from its first fact or its fork on. They must not do anything else: a
killed process runs no handler and flushes nothing, as in a power failure.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from txsaga import config
from txsaga.core.facts import Fact
from txsaga.core.forking import at_fork
from txsaga.errors import ConfigError

T = TypeVar("T")

KILL = config.KILL.name
FACTS = config.FACTS.name


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """The n-th time that a process announces a fact."""

    fact: str
    occurrence: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a point written as `Decided:1`."""
        fact, _, occurrence = config.KILL.read("the kill point", text).partition(":")
        return cls(fact=fact, occurrence=int(occurrence))

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return f"{self.fact}:{self.occurrence}"


class Count:
    """Counts facts by name; any thread may announce one."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, fact: Fact) -> KillPoint:
        """Count a fact and return its point."""
        with self._lock:
            self._seen[fact.name] += 1
            return KillPoint(fact=fact.name, occurrence=self._seen[fact.name])


def observer(fact: Fact) -> None:
    """Kill this process at the point that TXSAGA_KILL names."""
    count, point = _killing()
    if count(fact) == point:
        os.kill(os.getpid(), signal.SIGKILL)


def recorder(fact: Fact) -> None:
    """Append the point to the file that TXSAGA_FACTS names, one per line."""
    count, file = _recording()
    os.write(file, f"{count(fact)}\n".encode())


def recorded(path: Path) -> list[KillPoint]:
    """Read what a recorder wrote."""
    return [KillPoint.parse(line) for line in path.read_text().splitlines()]


def sample(points: Sequence[KillPoint], count: int, seed: int) -> list[KillPoint]:
    """Draw some of the points in order, the same ones for the same seed."""
    chosen = random.Random(seed).sample(range(len(points)), min(count, len(points)))
    return [points[at] for at in sorted(chosen)]


@cache
def _killing() -> tuple[Count, KillPoint]:
    return Count(), KillPoint.parse(_set(config.KILL, "Decided:1"))


@cache
def _recording() -> tuple[Count, int]:
    path = _set(config.FACTS, "points.txt")
    return Count(), os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _set(setting: config.Variable[T], example: str) -> T:
    value = setting.of(os.environ)
    if value is None:
        raise ConfigError(f"{setting.name} is not set; write for example {setting.name}={example}")
    return value


at_fork(_killing.cache_clear)
at_fork(_recording.cache_clear)
