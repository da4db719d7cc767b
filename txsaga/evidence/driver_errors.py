"""Classifies driver errors for evidence, and converts them into our errors.

The codes of the three databases do not overlap: SQLSTATEs are text, MySQL's numbers are above 1000, SQLite's below 256.
A code not listed here gets the cautious meaning: not blocked, not forbidden, and at COMMIT unknown.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from txsaga.errors import RightsMissing, StoreError, StoreUnavailable, TxSagaError
from txsaga.evidence.schema import RIGHTS
from txsaga.evidence.sessions import plain

Code = str | int

_BLOCKED: frozenset[Code] = frozenset(
    {
        "55P03", "40P01", "40001", "57014",  # lock time-out, deadlock, serialization, statement time-out
        1205, 1213, 3572,                    # lock wait time-out, deadlock, nowait
        5, 6,                                # SQLITE_BUSY, SQLITE_LOCKED
    }
)  # fmt: skip
_FORBIDDEN: frozenset[Code] = frozenset(
    {
        "42501", "25006", "3F000",           # no right, read only, no schema to create in
        1044, 1142, 1290, 1792, 1836,        # no right on the database or table, read only
        8, 23,                               # SQLITE_READONLY, SQLITE_AUTH
    }
)  # fmt: skip
_REFUSED: frozenset[Code] = frozenset(
    {
        1213, 3101,                          # certification failed at commit in a cluster
        5, 6, 19,                            # still open: busy, locked, a deferred constraint
    }
)  # fmt: skip


def is_blocked(error: DBAPIError) -> bool:
    """Return whether another transaction blocked this one."""
    return code_of(error) in _BLOCKED


def is_forbidden(error: DBAPIError) -> bool:
    """Return whether a right is missing."""
    return code_of(error) in _FORBIDDEN


def is_absent(error: DBAPIError) -> bool:
    """Return whether PostgreSQL found no such table on the search path."""
    return code_of(error) == "42P01"


def refuses_commit(error: DBAPIError) -> bool:
    """Return whether an error at COMMIT is a definite no; any other error leaves the outcome unknown."""
    code = code_of(error)
    if not isinstance(code, str):
        return code in _REFUSED
    # FATAL and PANIC end the session, possibly after the commit was written.
    severity = getattr(getattr(error.orig, "diag", None), "severity_nonlocalized", None)
    severity = severity or getattr(getattr(error.orig, "__cause__", None), "severity_en", None)  # where asyncpg has it
    lost = code.startswith(("08", "57P")) or code == "40003"
    return severity == "ERROR" and not lost


class edge:
    """Converts a driver's errors in its block into ours, which name the resource; every call goes through it."""

    __slots__ = ("_resource",)

    def __init__(self, resource: str) -> None:
        self._resource = resource

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PoolTimeout):
            raise StoreUnavailable(f"resource {self._resource!r} has no free connection: {_line(error)}") from error
        if isinstance(error, DBAPIError):
            raise _ours(self._resource, error) from error


@contextmanager
def reached(resource: str, engine: Engine) -> Iterator[Connection]:
    """Connect to read something; any error while connecting means that the resource is unavailable."""
    with edge(resource):
        try:
            connection = plain(engine).connect()
        except (DBAPIError, PoolTimeout, TxSagaError):
            raise
        except Exception as away:  # from the user's own connect code: a vault, a token
            said = f"{type(away).__name__}: {_line(away)}"
            raise StoreUnavailable(f"resource {resource!r} can't be connected to: {said}") from away
        with connection:
            yield connection


def _ours(resource: str, error: DBAPIError) -> StoreError:
    reason = _line(error.orig or error)
    if is_forbidden(error):
        return RightsMissing(f"resource {resource!r} must grant us {RIGHTS}: {reason}")
    if error.connection_invalidated or isinstance(error, OperationalError | InterfaceError):
        return StoreUnavailable(f"resource {resource!r} does not answer: {reason}")
    return StoreError(f"resource {resource!r} refused: {reason}")


def code_of(error: BaseException) -> Code | None:
    """Return the driver's error code; None if it has none."""
    driver = error.orig if isinstance(error, DBAPIError) else error
    number = getattr(driver, "sqlite_errorcode", None)
    if isinstance(number, int):
        return number & 0xFF  # without the extended code
    first = driver.args[0] if driver is not None and driver.args else None
    if isinstance(first, int):
        return first  # preferred over the SQLSTATE, which is coarser
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    return state if isinstance(state, str) else None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
