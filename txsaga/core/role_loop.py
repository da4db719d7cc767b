"""
Running roles until they are stopped.

The loop, its pauses, its stop and its handling of errors exist once, here. An idle role waits longer and longer, up to
its `rest`; `wake` ends the wait, but not the `breath` that a role takes after it did something. A round that fails is
logged and tried again after a second, and the other roles go on. An error that a retry may fix is logged once, not each
second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from txsaga.core.failure import on_failure
from txsaga.errors import TxSagaError

logger = logging.getLogger("txsaga")

AFTER_ERROR = 1.0


class Role(Protocol):
    """Work that is done again and again, in rounds."""

    @property
    def name(self) -> str:
        """Its name in logs; roles with one name are parts of one, each with rounds and a pace of its own."""

    @property
    def pace(self) -> Pace:
        """How long to wait between rounds."""

    def run_once(self) -> int:
        """Do one bounded round; return how much was done."""


class Loop:
    """Runs each role in a thread of its own."""

    def __init__(self, roles: Sequence[Role], jitter: Callable[[], float] = lambda: 1.0) -> None:
        self._roles, self._jitter = list(roles), jitter
        self._stop = threading.Event()
        self._wakes = [threading.Event() for _ in self._roles]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all the threads, or none."""
        with on_failure(self.stop):
            for role, wakes in zip(self._roles, self._wakes, strict=True):
                thread = threading.Thread(target=self._run, args=(role, wakes), name=f"txsaga-{role.name}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def wake(self, name: str) -> None:
        """End a role's wait."""
        for role, wakes in zip(self._roles, self._wakes, strict=True):
            if role.name == name and not wakes.is_set():
                wakes.set()

    def stop(self) -> None:
        """Let every role finish its round, then stop."""
        self._stop.set()
        for wakes in self._wakes:
            wakes.set()
        for thread in self._threads:
            thread.join()

    def _run(self, role: Role, wakes: threading.Event) -> None:
        pause, told = role.pace.pause, ""
        while not self._stop.is_set():
            try:
                done = role.run_once()
            except BaseException as failure:  # noqa: BLE001  # otherwise the role would end silently
                told = _tell(role.name, failure, told)
                _wait(wakes, AFTER_ERROR)
                continue
            if told:
                logger.warning("role %s is running again", role.name, extra={"role": role.name})
                told = ""
            if done:
                pause = role.pace.pause
                if role.pace.breath:
                    self._stop.wait(role.pace.breath)
                    wakes.clear()  # the next round sees what woke it meanwhile
                continue
            woken = _wait(wakes, pause * self._jitter())
            pause = role.pace.pause if woken else min(pause * 2, max(role.pace.pause, role.pace.rest))


def _wait(wakes: threading.Event, seconds: float) -> bool:
    woken = wakes.wait(seconds)
    wakes.clear()
    return woken


def _tell(role: str, failure: BaseException, told: str) -> str:
    """Log why a round failed, unless that was logged already; return the logged reason."""
    if not (isinstance(failure, TxSagaError) and failure.retryable):
        logger.error("role %s failed; it is retried", role, exc_info=failure, extra={"role": role})
        return ""
    why = str(failure)
    if why != told:
        logger.warning("role %s waits: %s", role, failure, extra={"role": role})
    return why


class Pace(NamedTuple):
    """Seconds between the rounds of a role."""

    pause: float
    """After a round that found nothing."""
    rest: float
    """At most, after several rounds that found nothing."""
    breath: float = 0.0
    """After a round that did something: work gathers meanwhile, for rounds that cost much however little they find."""
