"""
What a database's own codes mean in two-phase commit.

What is not listed is a no for a reason of its own, never a yes. That nobody knows what became of a PREPARE is no
code: whoever sent it finds the session lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from txsaga.errors import xa

DUPLICATE_KEY = "23505"
GONE = "42704"
BUSY = "55000"

_STATES: Mapping[str, type[xa.XaError]] = MappingProxyType(
    {
        "25P02": xa.RolledBack,
        "40001": xa.Deadlocked,
        "40P01": xa.Deadlocked,
        "40002": xa.IntegrityViolated,
        "55P03": xa.TimedOut,
        "57014": xa.TimedOut,
        "25P03": xa.TimedOut,
        "25P04": xa.TimedOut,
        "57P05": xa.TimedOut,
        "42710": xa.DuplicateBranch,
    }
)
_CLASSES: Mapping[str, type[xa.XaError]] = MappingProxyType(
    {
        "08": xa.CommunicationFailed,
        "23": xa.IntegrityViolated,
        "53": xa.TransientFailure,  # as for room among the prepared transactions
    }
)


def of_state(state: str) -> type[xa.XaError]:
    """Return what an SQLSTATE of PostgreSQL means for a branch that was asked for its vote."""
    return _STATES.get(state) or _CLASSES.get(state[:2]) or xa.OtherReason
