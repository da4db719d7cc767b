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
CANCELLED = frozenset({"57014", 1317})

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


UNKNOWN_XID = 1397
OUTSIDE = 1400
DUPLICATE_XID = 1440
DUPLICATE_ENTRY = 1062
BEGUN_BEFORE = frozenset({OUTSIDE, 1568})
ROLLED_BACK_BY_SERVER = frozenset({1402, 1613, 1614})

_NUMBERS: Mapping[int, type[xa.XaError]] = MappingProxyType(
    {
        1397: xa.UnknownBranch,
        1398: xa.InvalidArguments,
        1399: xa.RolledBack,  # at XA END: it is not the open branch any more
        1400: xa.OutsideTransaction,
        1401: xa.ResourceManagerError,
        1402: xa.RolledBack,
        1440: xa.DuplicateBranch,
        1613: xa.TimedOut,
        1614: xa.Deadlocked,
        1213: xa.Deadlocked,
        5: xa.TimedOut,  # SQLite's own have one or two digits
        6: xa.TimedOut,
        19: xa.IntegrityViolated,
        1048: xa.IntegrityViolated,
        1062: xa.IntegrityViolated,
        1216: xa.IntegrityViolated,
        1217: xa.IntegrityViolated,
        1451: xa.IntegrityViolated,
        1452: xa.IntegrityViolated,
        3819: xa.IntegrityViolated,
        4025: xa.IntegrityViolated,
        1205: xa.TimedOut,
        1969: xa.TimedOut,
        3024: xa.TimedOut,
    }
)


def of_number(number: object) -> type[xa.XaError]:
    """Return what an error number of MariaDB or MySQL means for a branch."""
    return _NUMBERS.get(number, xa.OtherReason) if isinstance(number, int) else xa.OtherReason


def of_code(code: object) -> type[xa.XaError]:
    """Return what either of them means for a statement: a no in any case."""
    kind = of_state(code) if isinstance(code, str) else of_number(code)
    return kind if issubclass(kind, xa.VotedNo) else xa.OtherReason
