"""The wall clock: the one place below the composition root that reads it."""

from collections.abc import Callable
from datetime import datetime

import pendulum

Clock = Callable[[], datetime]
"""Whatever says what time it is, with a time zone."""


def wall_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return pendulum.now("UTC")
