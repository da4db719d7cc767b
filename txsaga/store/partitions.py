"""
Partitions of `half` and `op`: added ahead of the transaction numbers, dropped when nothing in them is needed.

A partition is built as a separate table and attached under a short lock timeout: `CREATE … PARTITION OF`
would wait for one long reader and stall every producer meanwhile (R13). Before a drop it is locked against
writers and checked again: a half message with an old number may have been committed while the drop waited for
its lock. Spared rows (of parked doubts, and of what is due in an hour or later) do not count as needed: they are
copied to a partition that replaces it. If a query of what is needed were missing, a drop would delete what has not
been read or settled. If no process adds partitions, inserts fail with a clear error once the numbers pass the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, text

from txsaga.checkback.doubts_store import LOOKS
from txsaga.errors import StoreUnavailable
from txsaga.store import sql_files
from txsaga.store.connection import transaction

SPAN = 1_000_000
"""Transaction numbers per partition."""
TABLES = ("half", "op")
LOCK_TIMEOUT = "500ms"
LOCKED_TIMEOUT = "200ms"
"""Lock timeout once a drop keeps others waiting: far below the server's `deadlock_timeout`."""
TICKS = 20_000
"""Upper bound of old ticks that one round drops."""
SHARE = 10
"""At most one row in this many of a partition is copied, and at most one row per this many of its numbers."""
BYTES = 256 * 1024 * 1024
"""Bytes of bodies copied at most: a decision about one of them waits for the copy."""
_BOUNDS = re.compile(r"FROM \('(\d+)'\) TO \('(\d+)'\)")

SQL = sql_files.read("store/sql/partition.sql")
NEEDS = sql_files.read("store/sql/retention.sql")

COORDINATED = ("branch", "ballot", "vote", "reservation", "flow_resource", "flow_unit", "step", "saga")
OF_TRANSACTIONS = ("part", "effect", "table_intent", *COORDINATED, "tx", "doubt", "event", "scheduled")
"""Tables whose rows are deleted with the partition of their transaction."""

# The cheapest query first: if it finds something, no other runs.
IN_USE = (
    "oldest_kept",
    "undecided",
    "open_transaction",
    "open_branch",
    "open_saga",
    "newest_kept",
    "unread",
    "without_offset",
)


class Partitions:
    """The partitions of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._namespace = engine, namespace

    def extend(self, ahead: int) -> int:
        """Add partitions until `ahead` more transaction numbers fit; return how many were added."""
        with transaction(self._engine) as connection:
            return extend(connection, self._namespace, ahead)

    def drop(self) -> int:
        """Drop old ticks, and the oldest partitions while only spared rows are needed in them; return how many."""
        with transaction(self._engine) as connection:
            connection.execute(text(f'SELECT "{self._namespace}".drop_ticks(:most)'), {"most": TICKS})
            there = bounds(connection, self._namespace, "half")
        weigh(self._engine, self._namespace, there)
        dropped = 0
        for low, high in there[:-1]:
            if self._left(low, high):
                continue
            if not self._drop(low, high):
                break
            dropped += 1
        return dropped

    def _left(self, low: int, high: int) -> bool:
        s, values = f'"{self._namespace}"', {"low": low, "bound": high}
        some = NEEDS["some_spared"].format(s=s)
        with transaction(self._engine) as connection:
            return all(connection.execute(text(asked), values).scalar_one() for asked in (some, left(s)))

    def _drop(self, low: int, high: int) -> bool:
        s = f'"{self._namespace}"'
        try:
            with transaction(self._engine) as connection:
                connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
                connection.execute(text(SQL["one_by_one"]), {"name": f"{s}.partitions"})
                there = (low, high) in bounds(connection, self._namespace, "half")
                if not there or self._needed(connection, high):
                    return False
                # This locks it against writers, checks it again, and drops it.
                return bool(connection.execute(text(f"SELECT {s}.drop_partition(:low)"), {"low": low}).scalar_one())
        except StoreUnavailable:
            return False  # a long reader or writer holds it; the next round tries again

    def _needed(self, connection: Connection, high: int) -> bool:
        s = f'"{self._namespace}"'
        last = connection.execute(text(f"SELECT last_value FROM {s}.tx_seq")).scalar_one()
        return last < high or any(connection.execute(text(sql), {"bound": high}).scalar_one() for sql in needed(s))


def attaching(s: str) -> str:
    """Return the function body that adds a partition to a table."""
    return SQL["attach_partition"].format(s=s, span=SPAN, lock_timeout=LOCK_TIMEOUT)


def dropping(s: str) -> str:
    """Return the function body that drops a partition but for spared rows, unless other rows are needed."""
    holding = [*needed(s), left(s)]
    written = SQL["drop_partition"].format(
        s=s,
        span=SPAN,
        locked_timeout=LOCKED_TIMEOUT,
        needed="\n".join(f"IF ({sql}) THEN RETURN false; END IF;" for sql in holding),
        spares=NEEDS["spares"].format(s=s),
        places=", ".join(f"'{table}'" for table in OF_TRANSACTIONS),
    )
    return written.replace(":bound", "high").replace(":low", "$1")


def dropping_ticks(s: str) -> str:
    """Return the function body that drops old ticks, never the newest one."""
    names = ", ".join(f"'{name}'" for name in LOOKS)
    return SQL["drop_ticks"].format(s=s, looks=len(LOOKS), names=names)


def extend(connection: Connection, namespace: str, ahead: int) -> int:
    """Add partitions in the caller's transaction; return how many were added."""
    s = f'"{namespace}"'
    connection.execute(text(SQL["one_by_one"]), {"name": f"{s}.partitions"})
    last = connection.execute(text(f"SELECT last_value FROM {s}.tx_seq")).scalar_one()
    added = 0
    for table in TABLES:
        have = bounds(connection, namespace, table)
        low = have[-1][1] if have else 0
        while low <= last + ahead:
            connection.execute(text(f"SELECT {s}.attach_partition(:table, :low)"), {"table": table, "low": low})
            low, added = low + SPAN, added + 1
    return added


def is_dropped(connection: Connection, namespace: str, txid: int) -> bool:
    """Return whether the partition of a number existed and is dropped; wait while one is being replaced."""
    connection.execute(text(SQL["one_by_one"]), {"name": f'"{namespace}".partitions'})
    there = bounds(connection, namespace, "op")
    return bool(there) and txid < there[-1][1] and not any(low <= txid < high for low, high in there)


def bounds(connection: Connection, namespace: str, table: str) -> list[tuple[int, int]]:
    """Return the bounds of a table's partitions, lowest first."""
    rows = connection.execute(text(SQL["bounds"]), {"parent": f'"{namespace}".{table}'}).scalars()
    found = [_BOUNDS.search(bound) for bound in rows if bound]  # None if another process just dropped it
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def left(s: str) -> str:
    """Return SQL that asks whether the partition from :low to :bound is left as it is."""
    return NEEDS["left"].format(s=s, share=SHARE, most=SPAN // SHARE, bytes=BYTES)


def weigh(engine: Engine, namespace: str, bounds: Sequence[tuple[int, int]]) -> None:
    """Store the sizes of partitions that became full, if a topic is kept by size."""
    s = f'"{namespace}"'
    with transaction(engine) as connection:
        full_below = connection.execute(text(NEEDS["full_below"].format(s=s))).scalar_one_or_none() or 0
        full = [(low, high) for low, high in bounds if high <= full_below]
        weighed = set(connection.execute(text(NEEDS["weighed"].format(s=s))).scalars()) if full else set()
        for low, high in full:
            if low not in weighed:
                connection.execute(text(NEEDS["weigh"].format(s=s)), {"low": low, "high": high})


def needed(s: str) -> list[str]:
    """Return the queries that ask whether anything below :bound is still needed."""
    return [NEEDS[name].format(s=s) for name in IN_USE]
