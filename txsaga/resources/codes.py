"""
What a database's own error codes mean in two-phase commit.

A code that is not listed is a no for its own reason, never a yes. A PREPARE whose outcome is unknown has no code: its
sender finds the session lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from txsaga import errors

DUPLICATE_KEY = "23505"
GONE = "42704"
BUSY = "55000"
CANCELLED = frozenset({"57014", 1317})

_STATES: Mapping[str, type[errors.XaError]] = MappingProxyType(
    {
        "25P02": errors.RolledBack,
        "40001": errors.Deadlocked,
        "40P01": errors.Deadlocked,
        "40002": errors.IntegrityViolated,
        "55P03": errors.TimedOut,
        "57014": errors.TimedOut,
        "25P03": errors.TimedOut,
        "25P04": errors.TimedOut,
        "57P05": errors.TimedOut,
        "42710": errors.DuplicateBranch,
    }
)
_CLASSES: Mapping[str, type[errors.XaError]] = MappingProxyType(
    {
        "08": errors.CommunicationFailed,
        "23": errors.IntegrityViolated,
        "53": errors.TransientFailure,  # e.g. no free slot for a prepared transaction
    }
)


def of_state(state: str) -> type[errors.XaError]:
    """Return what a PostgreSQL SQLSTATE means for a branch that was asked for its vote."""
    return _STATES.get(state) or _CLASSES.get(state[:2]) or errors.OtherReason


UNKNOWN_XID = 1397
OUTSIDE = 1400
DUPLICATE_XID = 1440
ROLLED_BACK_BY_SERVER = frozenset({1402, 1613, 1614})

_NUMBERS: Mapping[int, type[errors.XaError]] = MappingProxyType(
    {
        1397: errors.UnknownBranch,
        1398: errors.InvalidArguments,
        1399: errors.RolledBack,  # at XA END: the branch is no longer open
        1400: errors.OutsideTransaction,
        1401: errors.ResourceManagerError,
        1402: errors.RolledBack,
        1440: errors.DuplicateBranch,
        1613: errors.TimedOut,
        1614: errors.Deadlocked,
        1213: errors.Deadlocked,
        5: errors.TimedOut,  # SQLite's codes have one or two digits
        6: errors.TimedOut,
        19: errors.IntegrityViolated,
        1048: errors.IntegrityViolated,
        1062: errors.IntegrityViolated,
        1216: errors.IntegrityViolated,
        1217: errors.IntegrityViolated,
        1451: errors.IntegrityViolated,
        1452: errors.IntegrityViolated,
        3819: errors.IntegrityViolated,
        4025: errors.IntegrityViolated,
        1205: errors.TimedOut,
        1969: errors.TimedOut,
        3024: errors.TimedOut,
    }
)


def of_number(number: object) -> type[errors.XaError]:
    """Return what an error number of MariaDB or MySQL means for a branch."""
    return _NUMBERS.get(number, errors.OtherReason) if isinstance(number, int) else errors.OtherReason


def of_code(code: object) -> type[errors.XaError]:
    """Return what either kind of code means for a statement: a no in any case."""
    kind = of_state(code) if isinstance(code, str) else of_number(code)
    return kind if issubclass(kind, errors.VotedNo) else errors.OtherReason
