"""A clock that stands until it is moved."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock

import pendulum

START = pendulum.datetime(2026, 1, 1, 12, tz="UTC")


class FakeClock:
    """Tells the time it was given; any number of threads may ask and move it."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"{start} has no time zone; use pendulum or an aware datetime")
        self._now = start
        self._lock = Lock()

    def __call__(self) -> datetime:
        """Tell the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the time on."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
