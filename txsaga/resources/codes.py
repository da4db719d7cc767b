"""
What a database's own error codes mean in two-phase commit.

A code that is not listed is a no for its own reason, never a yes. A PREPARE whose outcome is unknown has no code: its
sender finds the session lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from txsaga.errors import (
    CommunicationFailed,
    Deadlocked,
    DuplicateBranch,
    IntegrityViolated,
    InvalidArguments,
    OtherReason,
    OutsideTransaction,
    ResourceManagerError,
    RolledBack,
    TimedOut,
    TransientFailure,
    UnknownBranch,
    VotedNo,
    XaError,
)

DUPLICATE_KEY = "23505"
GONE = "42704"
BUSY = "55000"
CANCELLED = frozenset({"57014", 1317})

_STATES: Mapping[str, type[XaError]] = MappingProxyType(
    {
        "25P02": RolledBack,
        "40001": Deadlocked,
        "40P01": Deadlocked,
        "40002": IntegrityViolated,
        "55P03": TimedOut,
        "57014": TimedOut,
        "25P03": TimedOut,
        "25P04": TimedOut,
        "57P05": TimedOut,
        "42710": DuplicateBranch,
    }
)
_CLASSES: Mapping[str, type[XaError]] = MappingProxyType(
    {
        "08": CommunicationFailed,
        "23": IntegrityViolated,
        "53": TransientFailure,  # e.g. no free slot for a prepared transaction
    }
)


def of_state(state: str) -> type[XaError]:
    """Return what a PostgreSQL SQLSTATE means for a branch that was asked for its vote."""
    return _STATES.get(state) or _CLASSES.get(state[:2]) or OtherReason


UNKNOWN_XID = 1397
OUTSIDE = 1400
DUPLICATE_XID = 1440
ROLLED_BACK_BY_SERVER = frozenset({1402, 1613, 1614})

_NUMBERS: Mapping[int, type[XaError]] = MappingProxyType(
    {
        1397: UnknownBranch,
        1398: InvalidArguments,
        1399: RolledBack,  # at XA END: the branch is no longer open
        1400: OutsideTransaction,
        1401: ResourceManagerError,
        1402: RolledBack,
        1440: DuplicateBranch,
        1613: TimedOut,
        1614: Deadlocked,
        1213: Deadlocked,
        5: TimedOut,  # SQLite's codes have one or two digits
        6: TimedOut,
        19: IntegrityViolated,
        1048: IntegrityViolated,
        1062: IntegrityViolated,
        1216: IntegrityViolated,
        1217: IntegrityViolated,
        1451: IntegrityViolated,
        1452: IntegrityViolated,
        3819: IntegrityViolated,
        4025: IntegrityViolated,
        1205: TimedOut,
        1969: TimedOut,
        3024: TimedOut,
    }
)


def of_number(number: object) -> type[XaError]:
    """Return what an error number of MariaDB or MySQL means for a branch."""
    return _NUMBERS.get(number, OtherReason) if isinstance(number, int) else OtherReason


def of_code(code: object) -> type[XaError]:
    """Return what either kind of code means for a statement: a no in any case."""
    kind = of_state(code) if isinstance(code, str) else of_number(code)
    return kind if issubclass(kind, VotedNo) else OtherReason
