"""The wall clock: the only place below the composition root that reads it."""

from datetime import datetime

import pendulum


def wall_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return pendulum.now("UTC")
