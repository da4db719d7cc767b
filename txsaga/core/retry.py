"""
Trying a step again while the store is unavailable: clients of a server that restarts recover by themselves.

Only for steps that may be done twice: an error at COMMIT means unknown, so the step may already have been done when it
is tried again. Without retries, each restart of the server would end every reader.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from txsaga.core.fibers import pause as wait
from txsaga.errors import BrokerClosed, OutcomeUnknown, StoreUnavailable

PATIENCE = 30.0
"""Seconds."""

Answer = TypeVar("Answer")


def patiently(step: Callable[[], Answer], patience: float = PATIENCE) -> Answer:
    """Run a step that may be done twice, waiting for the store to come back."""
    end, pause = time.monotonic() + patience, 0.05
    unknown: OutcomeUnknown | None = None
    while True:
        try:
            return step()
        except (StoreUnavailable, OutcomeUnknown) as failed:
            unknown = failed if isinstance(failed, OutcomeUnknown) else unknown
            if time.monotonic() + pause > end:
                raise
        except BrokerClosed:
            if unknown is None:
                raise
            raise unknown from None  # "closed" would mean that nothing was done
        wait(pause)
        pause = min(pause * 2, 1.0)
