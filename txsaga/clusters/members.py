"""
The brokers of a cluster as this client sees them: which are reachable, and when to retry the others.

A broker that fails is skipped for a while, then probed again. Nothing is stored or decided by this: a broker that is
wrongly taken for dead rolls back or keeps what it was sent like any other. Without probing again, a broker that came
back would get no more messages until the client reconnects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from uuid import UUID

from txsaga.broker import Broker
from txsaga.core.failure import on_failure
from txsaga.errors import BrokerClosed, NotPrimary, StoreUnavailable, TxSagaError

logger = logging.getLogger("txsaga")

AWAY = (StoreUnavailable, NotPrimary, BrokerClosed)
"""The errors of an unavailable broker; another may take its place."""
LOOKING = 60.0
"""Seconds that one probe takes at most."""
RETRY = 5.0
"""Seconds until an unavailable broker is probed again."""


class Members:
    """The brokers of one client."""

    def __init__(
        self,
        open: Mapping[str, Callable[[], Broker]],
        on_open: Callable[[str, Broker], None],
        *,
        ours: Iterable[str] = (),
        retry: float = RETRY,
    ) -> None:
        self._open, self._on_open, self._retry = dict(open), on_open, retry
        self._brokers: dict[str, Broker] = {}
        self._ours = frozenset(ours)
        self._away: dict[str, float] = {}  # until when
        self._closed = False
        self._lock = RLock()
        self.changes = 0
        """How often a broker went or came back: a caller that remembers the number notices a change."""

    @property
    def names(self) -> tuple[str, ...]:
        """All brokers, in order."""
        return tuple(self._open)

    def require_open(self) -> None:
        """Raise `BrokerClosed` once the cluster is closed."""
        if self._closed:
            raise BrokerClosed("cluster", "txsaga.cluster()")

    def available(self) -> tuple[str, ...]:
        """Return the reachable brokers; one that has been unavailable for long enough is probed again."""
        self.require_open()
        return tuple(name for name in self._open if self.is_there(name))

    def is_there(self, name: str) -> bool:
        """Return whether a broker is reachable, as far as this client knows."""
        with self._lock:
            if name in self._brokers and name not in self._away:
                return True
            if time.monotonic() < self._away.get(name, 0.0):
                return False
            was_away = name in self._away
            self._away[name] = time.monotonic() + LOOKING  # other threads skip it while one probes
        with on_failure(self._away.update, {name: 0.0}):
            return self._look(name, was_away)

    def broker(self, name: str) -> Broker:
        """Return a reachable broker; raise `StoreUnavailable` for another."""
        if not self.is_there(name):
            raise StoreUnavailable(f"broker {name!r} is unavailable; try again later")
        return self._brokers[name]

    def of_store(self, store: UUID) -> str | None:
        """Return the name of the broker with this store."""
        return next((name for name, broker in self._brokers.items() if broker.identity.uuid == store), None)

    def failed(self, name: str, why: TxSagaError) -> None:
        """Record that a broker did not answer."""
        self._pause(name, why, lost=name not in self._away)

    def look_again(self) -> None:
        """Probe every unavailable broker on next use, however recently it failed."""
        with self._lock:
            self._away = dict.fromkeys(self._away, 0.0)

    def close(self) -> None:
        """Close the brokers that were opened here."""
        self._closed = True
        for name in self._ours & self._brokers.keys():
            self._brokers[name].close()

    def _opened(self, name: str) -> Broker:
        broker = self._open[name]()
        with on_failure(broker.close if name in self._ours else lambda: None):
            self._on_open(name, broker)
        return broker

    def _look(self, name: str, was_away: bool) -> bool:
        try:
            if name not in self._brokers:
                self._brokers[name] = self._opened(name)
            self._brokers[name].kernel.store.registry.topics()
        except AWAY as why:
            self._pause(name, why, lost=not was_away)
            return False
        with self._lock:
            self._away.pop(name, None)
            if was_away:
                logger.info("broker %r is reachable again", name)
                self.changes += 1
        return True

    def _pause(self, name: str, why: TxSagaError, *, lost: bool) -> None:
        with self._lock:
            self._away[name] = time.monotonic() + self._retry
            if lost:
                logger.warning("broker %r is unavailable, next attempt in %.0f s: %s", name, self._retry, why)
                self.changes += 1
