"""The wall clock: the only place below the composition root that reads it."""

from collections.abc import Callable
from datetime import datetime

import pendulum

Clock = Callable[[], datetime]
"""Returns the current time, with a time zone."""


def wall_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return pendulum.now("UTC")
