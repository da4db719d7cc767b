"""PostgreSQL types that the tables use, and constraints, some of them from the model's enums."""

from enum import StrEnum

from sqlalchemy import DateTime, MetaData, SmallInteger, text
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.types import UserDefinedType


class Xid8(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the type's name."""
        return "xid8"


class Snapshot(UserDefinedType[str]):
    """Which transactions were visible."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the type's name."""
        return "pg_snapshot"


def one_of(column: str, values: type[StrEnum]) -> str:
    """Return the constraint that limits a column to the values of an enum."""
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


def finite(column: str) -> str:
    """Return the constraint that a moment is finite: a row that waits for an infinite one would never be due."""
    return f"isfinite({column})"


def lifelong(column: str) -> str:
    """Return the constraint that an interval can be added to a moment: one that can't fails a whole statement."""
    return f"{column} BETWEEN interval '0' AND interval '36500 days'"


def readable(column: str, name: str) -> str:
    """Return the constraint that a JSON member is absent, or a number of seconds that can be added to a moment."""
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

# A domain: every statement that writes a row would load a table's constraint again.
Decided = DOMAIN("tx_decision", SmallInteger(), check="VALUE IN (1, 2)", metadata=metadata)
