"""
What is still needed below a transaction number: while one of these queries is true, no partition below it is dropped.

Rows that a drop spares (of parked doubts, and of what is due in an hour or later) do not count as needed. If a query
were missing, a drop would delete what has not been read or settled.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, text

from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

SHARE = 10
"""At most one row in this many of a partition is copied, and at most one row per this many of its numbers."""
BYTES = 256 * 1024 * 1024
"""Bytes of bodies copied at most: a decision about one of them waits for the copy."""

SQL = sql_files.read("store/sql/retention.sql")

# The cheapest query first: if it finds something, no other runs.
NEEDED = (
    "oldest_kept",
    "undecided",
    "open_transaction",
    "open_branch",
    "open_saga",
    "newest_kept",
    "unread",
    "without_offset",
)


def some(s: str) -> str:
    """Return SQL that asks whether anything from :low to :bound is spared."""
    return SQL["some_spared"].format(s=s)


def spares(s: str) -> str:
    """Return SQL that asks whether a drop has to copy rows from :low to :bound."""
    return SQL["spares"].format(s=s)


def left(s: str) -> str:
    """Return SQL that asks whether the partition from :low to :bound is left as it is."""
    return SQL["left"].format(s=s, share=SHARE, most=schema.SPAN // SHARE, bytes=BYTES)


def weigh(engine: Engine, namespace: str, bounds: Sequence[tuple[int, int]]) -> None:
    """Store the sizes of partitions that became full, if a topic is kept by size."""
    s = f'"{namespace}"'
    with transaction(engine) as connection:
        full_below = connection.execute(text(SQL["full_below"].format(s=s))).scalar_one_or_none() or 0
        full = [(low, high) for low, high in bounds if high <= full_below]
        weighed = set(connection.execute(text(SQL["weighed"].format(s=s))).scalars()) if full else set()
        for low, high in full:
            if low not in weighed:
                connection.execute(text(SQL["weigh"].format(s=s)), {"low": low, "high": high})


def needed(s: str) -> list[str]:
    """Return the queries that ask whether anything below :bound is still needed."""
    return [SQL[name].format(s=s) for name in NEEDED]
