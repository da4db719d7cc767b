"""
The store of a console: opened by the first request, and shared by all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from txsaga.config import with_namespace
from txsaga.console.alarms import Alarm, alarms
from txsaga.console.probes import Probes
from txsaga.console.queries import ConsoleQueries
from txsaga.errors import TxSagaError
from txsaga.store.doctor import Finding, examine

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.clusters.config import ClusterConfig

FRESH, BRIEF = 15.0, 0.2
"""Seconds for which findings are shown again, and for which a page waits for the number of alarms."""


class Home:
    """The broker of a console; no role runs in it."""

    def __init__(
        self, opens: Callable[[], Broker], env: Mapping[str, str] = os.environ, cluster: ClusterConfig | None = None
    ) -> None:
        self._opens, self._lock, self._asking = opens, threading.Lock(), threading.Lock()
        self.env, self.cluster, self.probes = env, cluster, Probes()
        self._broker: Broker | None = None
        self._holding = 0  # alarms
        self._found: tuple[float, Sequence[Finding], Sequence[Alarm]] = 0.0, (), ()

    def open(self) -> None:
        """Open it now; an error of the store if it can't be reached."""
        _ = self.broker

    @property
    def broker(self) -> Broker:
        """The broker; an error of the store if it can't be reached."""
        with self._lock:
            if self._broker is None:
                self._broker = self._opens()
            return self._broker

    @property
    def url(self) -> str:
        """The URL of the store."""
        store = self.broker.kernel.store
        return with_namespace(
            store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False), store.namespace
        )

    def trouble(self) -> tuple[Sequence[Finding], Sequence[Alarm]]:
        """Return what the doctor finds, and the alarms, at most some seconds old."""
        with self._asking:  # many open pages ask once
            at, found, alarmed = self._found
            if not found or time.monotonic() > at + FRESH:
                found, alarmed = examine(self.url), alarms(self.broker.kernel.store)
                self._found, self._holding = (time.monotonic(), found, alarmed), _holding(alarmed)
            return found, alarmed

    def badges(self) -> Mapping[str, int]:
        """Count what the menu shows: dead letters, and alarms that hold, as an earlier look found them."""
        store = self.broker.kernel.store

        def look() -> None:
            self._holding = _holding(alarms(store))

        self.probes.ask({("menu", "alarms"): look}, patience=BRIEF)
        return {"letters": ConsoleQueries.of(store).letters(), "alarms": self._holding}

    def close(self) -> None:
        """Close it, if it was opened."""
        with self._lock, suppress(TxSagaError):
            if self._broker is not None:
                self._broker.close()
            self._broker = None


def _holding(found: Sequence[Alarm]) -> int:
    return sum(bool(alarm.on) for alarm in found)
