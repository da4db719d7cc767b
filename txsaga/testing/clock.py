"""A clock that moves only when it is advanced."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock

import pendulum

START = pendulum.datetime(2026, 1, 1, 12, tz="UTC")


class FakeClock:
    """Returns the time it was set to; any number of threads may read and advance it."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"{start} has no time zone; use pendulum or an aware datetime")
        self._now = start
        self._lock = Lock()

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
