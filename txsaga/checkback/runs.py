"""What a host (Airflow) reports about its runs."""

from enum import Enum, auto
from typing import Protocol


class RunState(Enum):
    """What a host reports about a run; never that a transaction is to be committed."""

    ALIVE = auto()  # queued, running, deferred, waiting for input
    UNREACHABLE = auto()  # unknown: the transaction waits, until its total time is over
    OVER = auto()  # it ended, or is unknown


class Runs(Protocol):
    """The runs of one host."""

    def state(self, run: str) -> RunState:
        """Return the state of a run."""
