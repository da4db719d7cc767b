"""Types of PostgreSQL that the tables use, and constraints that come from the words of the model."""

from enum import StrEnum

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
