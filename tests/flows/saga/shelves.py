"""A world in memory for random sagas: a resource that keeps rows of steps, and processes that die at a fact."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.oracle import MemoryStore
from tests.scene.fake_store import bare_kernel
from txsaga.core.announcer import Announcer
from txsaga.core.facts import Fact
from txsaga.core.kernel import Kernel
from txsaga.errors import StepRefused
from txsaga.evidence.ports import Announce, Ran
from txsaga.testing import FakeClock


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Mortal:
    """An observer that lets its process die at the n-th fact; from there on every durable step of it fails."""

    def __init__(self, at: int | None) -> None:
        self._left, self._lock = at, threading.Lock()
        self.dead = False

    def __call__(self, fact: Fact) -> None:
        """Count a fact."""
        with self._lock:
            if self._left is not None:
                self._left -= 1
                self.dead = self.dead or self._left <= 0
        if self.dead:
            raise Killed(fact.name)


@dataclass(slots=True)
class Shelf:
    """A resource: what its steps did, and their rows."""

    database: UUID
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    effects: list[tuple[str, str]] = field(default_factory=list)
    """What was done and undone anywhere, in order."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def steps(self) -> Shelf:
        """Its steps."""
        return self

    def run(
        self,
        transaction: str,
        row: str,
        work: Callable[[Any], object] | str,
        input: Mapping[str, object],
        announce: Announce,
    ) -> Ran:
        """Do work once, with its row in the same commit."""
        assert callable(work)
        with self.lock:
            standing = self.rows.get((transaction, row))
            if standing == 2:
                raise StepRefused(transaction, int(row.partition(":")[2]))
            if standing == 1:
                return Ran(None, False)
            staged: list[tuple[str, str]] = []
            work(staged)
            announce(False)
            self.rows[transaction, row] = 1
            self.effects += staged
        announce(True)
        return Ran(None, True)

    def fence(self, transaction: str, row: str) -> bool:
        """Tell whether a step was done; keep it out where it was not."""
        with self.lock:
            return self.rows.setdefault((transaction, row), 2) == 1

    def is_running(self, transaction: str, row: str) -> bool:
        """Return False: processes come one after the other."""
        return False

    def output(self, transaction: str, row: str) -> str | None:
        """Nothing is kept here."""
        return None


class Town:
    """One store, one resource, and processes one after the other."""

    def __init__(self) -> None:
        self.clock, self.shelf = FakeClock(), Shelf(UUID(int=1))
        self.store = MemoryStore(self.clock)

    def process(self, dies_at: int | None) -> tuple[Kernel, Mortal]:
        """Start a process that dies at a fact, or does not."""
        mortal = Mortal(dies_at)
        announce, member = Announcer([mortal]), f"process {id(mortal)}"
        kernel = bare_kernel(self.store, announce, member, evidence=lambda name: (str(name), self.shelf))
        return kernel, mortal
