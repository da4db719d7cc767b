"""
How a process reaches resources: each by itself, with a pause of its own after a failure.

Work on one resource is one thread. Who waits for it waits a bounded time and leaves it at work, so that a resource
that does not answer keeps nobody from another one. If a thread never ends, only its own resource is not worked on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass

logger = logging.getLogger("txsaga")

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds of pause after a failure of a resource."""
PATIENCE = 5.0
"""Seconds that a round waits for resources that are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHealth:
    """What the last round found of a resource."""

    told: int = 0
    left: int = 0  # branches that it could not be told about, and why
    why: str = ""
    away: bool = False
    earlier: tuple[str, ...] = ()  # prepared branches of an earlier life of the store

    def document(self) -> dict[str, object]:
        """Write it for programs."""
        return {"told": self.told, "away": self.away, "why": self.why or None, "earlier": list(self.earlier)}


class ResourceScheduler:
    """The resources that are worked on from here."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._pauses: dict[str, tuple[float, float]] = {}  # how long, and until when
        self._under_way: set[str] = set()

    def is_due(self, resource: str) -> bool:
        """Tell whether a resource may be tried."""
        return resource not in self._under_way and time.monotonic() >= self._pauses.get(resource, (0.0, 0.0))[1]

    def failed(self, resource: str) -> float:
        """Note a failure; return the pause."""
        pause = min(self._pauses.get(resource, (SHORTEST / 2, 0.0))[0] * 2, LONGEST)
        self._pauses[resource] = pause, time.monotonic() + pause
        return pause

    def answered(self, resource: str) -> None:
        """Note that it is there."""
        self._pauses.pop(resource, None)

    def each(self, jobs: Mapping[str, Callable[[], int]]) -> int:
        """Work on resources side by side; return what was done in time."""
        started = [self._started(resource, job) for resource, job in jobs.items()]
        done, _ = wait(started, self._patience)
        return sum(future.result() for future in done)

    def _started(self, resource: str, job: Callable[[], int]) -> Future[int]:
        future: Future[int] = Future()
        self._under_way.add(resource)
        name = f"txsaga-recovery-{resource}"
        threading.Thread(target=self._run, args=(resource, job, future), name=name, daemon=True).start()
        return future

    def _run(self, resource: str, job: Callable[[], int], future: Future[int]) -> None:
        done = 0
        try:
            done = job()
        except Exception:  # the outermost line of its thread: whatever a resource raises is its own failure
            logger.exception("resource %r failed; tried again in %.0f s", resource, self.failed(resource))
        finally:
            self._under_way.discard(resource)
            future.set_result(done)


def briefly(reasons: Iterable[str]) -> str:
    """Name each reason once."""
    return "; ".join(dict.fromkeys(reasons))
