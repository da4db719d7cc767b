"""Runs: the flows of a host, which are asked before their transactions are judged (R5)."""

from enum import Enum, auto
from typing import Protocol


class RunState(Enum):
    """What a host says of a run; it never says that a transaction is to be committed."""

    ALIVE = auto()  # queued, running, deferred, waiting for somebody
    UNREACHABLE = auto()  # nobody can say: it waits, until its total time is over
    OVER = auto()  # it ended, or nobody knows it


class Runs(Protocol):
    """The runs of one host."""

    def state(self, run: str) -> RunState:
        """Say what became of a run."""
