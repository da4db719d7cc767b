"""The rows of a home database, as SQL sees them, and the hands of its clock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import DateTime, NullPool, create_engine, text

from tests.store import tables
from txsaga.store.connection import parse_url


class Stored:
    """One namespace, looked at from outside."""

    def __init__(self, home_url: str) -> None:
        url, self.namespace = parse_url(home_url)
        self._engine = create_engine(url, poolclass=NullPool)

    def rows(self, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement and return what it answers; `half`, `op` and so on are the namespace's."""
        with self._engine.begin() as connection:
            connection.execute(text(f'SET search_path = "{self.namespace}"'))
            found = connection.execute(text(sql), parameters)
            return [tuple(row) for row in found] if found.returns_rows else []

    def value(self, sql: str, **parameters: object) -> Any:  # whatever the statement selects
        """Return the one value of a statement."""
        ((value,),) = self.rows(sql, **parameters)
        return value

    def stop_autovacuum(self) -> None:
        """Let the server know nothing of the tables, and count no rows while one is filled."""
        tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = CAST(:schema AS regnamespace)"
        for (table,) in self.rows(tables, schema=f'"{self.namespace}"'):
            self.rows(f'ALTER TABLE "{table}" SET (autovacuum_enabled = off)')
        unknown = "UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = CAST(:schema AS regnamespace)"
        self.rows(f"{unknown} AND relkind = 'r'", schema=f'"{self.namespace}"')  # an earlier test's table was vacuumed

    def plan(self, sql: str) -> str:
        """Explain a statement, with scans of whole tables left for what has no other way."""
        with self._engine.begin() as connection:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            return "\n".join(connection.scalars(text(f"EXPLAIN {sql}")))

    def half(self, txid: int) -> list[tuple[Any, ...]]:
        """Return the half rows of a transaction, with the place and the writer of each on disk."""
        return self.rows("SELECT ctid::text, xmin::text, xmax::text, half.* FROM half WHERE txid = :t", t=txid)

    def let_pass(self, seconds: float) -> None:
        """Let time pass, by the database's clock, for everything that is stored now."""
        owners = (("half", "born"), ("tick", "at"), ("tx", "touched"), ("tx", "opened"))
        checks = (("doubt", "check_at"), ("doubt", "resumed"), ("question", "asked"), ("question", "until"))
        self._shift(seconds, *owners, *checks)

    def let_leases_pass(self, seconds: float) -> None:
        """Let time pass for everybody who leads or is alive."""
        self._shift(seconds, ("lease", "until"))

    def let_all_pass(self, seconds: float) -> None:
        """Let time pass for everything that has a moment: what a sleep would do, save for what runs meanwhile."""
        with self._engine.begin() as connection:
            for table in tables.metadata.tables.values():
                moments = [column for column in table.columns if isinstance(column.type, DateTime)]
                earlier = ", ".join(
                    f'"{each.name}" = "{each.name}" - {seconds} * interval \'1 second\'' for each in moments
                )
                if moments:
                    connection.exec_driver_sql(f'UPDATE "{self.namespace}"."{table.name}" SET {earlier}')

    def _shift(self, seconds: float, *columns: tuple[str, str]) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table, column in columns:
                earlier = f"{column} - :s * interval '1 second'"
                connection.execute(text(f'UPDATE "{self.namespace}".{table} SET {column} = {earlier}'), {"s": seconds})
