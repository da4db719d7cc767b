"""How long the caller of a saga waits for what is to be tried again, before it leaves that to another driver."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds in all."""


def patience(seconds: float = PATIENCE) -> Callable[[float], bool]:
    """Return what waits, as long as all of it together is not too long."""
    end = time.monotonic() + seconds

    def wait(pause: float) -> bool:
        if time.monotonic() + pause > end:
            return False
        time.sleep(pause)
        return True

    return wait


def impatient(_: float) -> bool:
    """Wait for nothing: there are other sagas to be driven."""
    return False
