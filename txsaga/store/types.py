"""Types of PostgreSQL that the tables use, and constraints that come from the words of the model."""

from enum import StrEnum

from sqlalchemy import DateTime, MetaData, SmallInteger, text
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.types import UserDefinedType


class Xid8(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Name the type."""
        return "xid8"


class Snapshot(UserDefinedType[str]):
    """Which transactions were visible."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Name the type."""
        return "pg_snapshot"


def one_of(column: str, values: type[StrEnum]) -> str:
    """Write the constraint that holds a column to the words of an enum."""
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


def finite(column: str) -> str:
    """Write the constraint that a moment comes: for what waits for one that never does, nobody would look again."""
    return f"isfinite({column})"


def lifelong(column: str) -> str:
    """Write the constraint that a time can be added to a moment: where it can't, a statement for many fails for all."""
    return f"{column} BETWEEN interval '0' AND interval '36500 days'"


def readable(column: str, name: str) -> str:
    """Write the constraint that a member of a JSON document is absent, or seconds that can be added to a moment."""
    return (
        f"CASE WHEN {column} ->> '{name}' IS NULL THEN true WHEN jsonb_typeof({column} -> '{name}') = 'number' "
        f"THEN ({column} ->> '{name}')::float8 BETWEEN 0 AND 3153600000 ELSE false END"
    )


NOW = text("clock_timestamp()")
FALSE = text("false")
ZERO = text("0")
EMPTY, NONE = text("'{}'"), text("'[]'")
Moment = DateTime(timezone=True)

metadata = MetaData()

# A domain, since a constraint of a table is read anew by every statement that writes a row.
Decided = DOMAIN("tx_decision", SmallInteger(), check="VALUE IN (1, 2)", metadata=metadata)
