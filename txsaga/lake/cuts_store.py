"""
Cuts on PostgreSQL: one REPEATABLE READ transaction ticks, reads the heads, exports its snapshot and commits.

The reader's connection imports that snapshot before the tick commits; the heads are passed as numbers. An open cut
locks nothing. A concurrent tick is a conflict, and the cut is retried.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from txsaga.consume.log_store import Log
from txsaga.errors import StoreUnavailable
from txsaga.lake.cut import Cut
from txsaga.lake.effects_store import pointers_of
from txsaga.lake.table import TableName
from txsaga.store import sql_files
from txsaga.store.connection import translating

PATIENCE = 10.0
SQL = sql_files.read("lake/sql/cut.sql")


class PostgresCuts:
    """Makes cuts of one namespace."""

    def __init__(self, engine: Engine, log: Log, namespace: str) -> None:
        self._engine, self._log, self._namespace = engine, log, namespace

    @contextmanager
    def cut(self, tables: Sequence[TableName] = ()) -> Iterator[Cut]:
        """Open a cut."""
        with translating():
            home = self._engine.connect().execution_options(isolation_level="REPEATABLE READ")
        try:
            yield self._cut(home, tables)
        finally:
            with suppress(DBAPIError):  # the server ended the session, or the connection broke: it only read
                home.rollback()
            home.close()

    def _cut(self, home: Connection, tables: Sequence[TableName]) -> Cut:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self._log.tick_with(lambda connection: self._read(connection, home, tables))
            if found is not None:
                tick, (heads, pointers) = found
                return Cut(tick=tick, heads=heads, home=home, pointers=pointers)
            home.rollback()
            time.sleep(0.003)
        raise StoreUnavailable(f"no tick could be had within {PATIENCE:g} s for this cut; retry")

    def _read(
        self, ticked: psycopg.Connection[Any], home: Connection, tables: Sequence[TableName]
    ) -> tuple[dict[str, tuple[int, ...]], dict[TableName, str]]:
        sql = SQL["heads"].format(s=f'"{self._namespace}"')
        heads = {name: tuple(offsets) for name, offsets in ticked.execute(sql)}
        pointers = pointers_of(ticked.execute, self._namespace, tables)
        (snapshot,) = ticked.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        with translating():
            home.execute(text(f"SET TRANSACTION SNAPSHOT '{snapshot}'"))
        return heads, pointers
