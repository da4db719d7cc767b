"""
Work on resources from one process: each by itself, with its own pause after a failure.

Each resource is worked on in a thread. A caller waits a bounded time and leaves it running, so that a silent resource
does not delay the others. If a thread never ends, only its own resource is not worked on.
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
"""Shortest and longest pause after a failure, in seconds."""
PATIENCE = 5.0
"""Seconds that a round waits for slow resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHealth:
    """What the last round found out about a resource."""

    told: int = 0
    left: int = 0  # branches that could not be finished, and why
    why: str = ""
    away: bool = False
    earlier: tuple[str, ...] = ()  # prepared branches of an earlier incarnation of the store

    def document(self) -> dict[str, object]:
        """Return it for machine-readable output."""
        return {"told": self.told, "away": self.away, "why": self.why or None, "earlier": list(self.earlier)}


class ResourceScheduler:
    """The resources that this process works on."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._pauses: dict[str, tuple[float, float]] = {}  # how long, and until when
        self._under_way: set[str] = set()

    def is_due(self, resource: str) -> bool:
        """Return whether a resource may be tried."""
        return resource not in self._under_way and time.monotonic() >= self._pauses.get(resource, (0.0, 0.0))[1]

    def failed(self, resource: str) -> float:
        """Note a failure; return the pause in seconds."""
        pause = min(self._pauses.get(resource, (SHORTEST / 2, 0.0))[0] * 2, LONGEST)
        self._pauses[resource] = pause, time.monotonic() + pause
        return pause

    def answered(self, resource: str) -> None:
        """Note that a resource is reachable."""
        self._pauses.pop(resource, None)

    def each(self, jobs: Mapping[str, Callable[[], int]]) -> int:
        """Work on resources in parallel; return what was done in time."""
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
        except Exception:  # outermost frame of its thread: a resource's error is its own failure
            logger.exception("resource %r failed; tried again in %.0f s", resource, self.failed(resource))
        finally:
            self._under_way.discard(resource)
            future.set_result(done)


def briefly(reasons: Iterable[str]) -> str:
    """Join the reasons, each once."""
    return "; ".join(dict.fromkeys(reasons))
